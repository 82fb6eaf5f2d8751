"""The nouns that every stage reads and writes: frozen dataclasses, no I/O except `io`, no third party."""
