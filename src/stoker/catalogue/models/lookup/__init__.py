"""Finding a model: bundled shapes, folders, the Hugging Face cache, and reading configs without trusting them."""
