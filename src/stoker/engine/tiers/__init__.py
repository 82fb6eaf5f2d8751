"""The tier engine: training state over GPU memory, DRAM and flash, exact AdamW, layer by layer."""

from stoker.engine.tiers.trainer import StepResult, TieredTrainer

__all__ = ["StepResult", "TieredTrainer"]
