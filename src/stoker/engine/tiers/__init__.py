"""The tier engine: training state over GPU memory, DRAM and flash, exact AdamW, layer by layer."""
