"""Codes of the tier engine: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST460",
        N_("host memory too small for the tiers"),
        N_(
            "The schedule needs more host memory than its budget, or than this process's cgroup still has; told before the first step, with the numbers."
        ),
        N_("Give more DRAM, keep more on the GPU, or let state overflow to flash with hardware.nvme."),
    ),
    Code(
        "ST461",
        N_("flash tier too small"),
        N_(
            "The folder of the flash tier has less free space (or a smaller budget) than the state that overflows to it; nothing was written."
        ),
        N_("Free space there, name another folder under hardware.nvme, or give more DRAM."),
    ),
    Code(
        "ST462",
        N_("flash tier failed"),
        N_(
            "A read or write of the flash tier's scratch file failed, or did not come back. The training state in memory cannot be trusted; the checkpoints are untouched."
        ),
        N_("Mend the disk or name another folder; the same command resumes from the last checkpoint."),
    ),
    Code(
        "ST463",
        N_("model is no chain of units"),
        N_(
            "The tier engine passes hidden states through one list of blocks, a block at a time; this model does something else between its blocks, or shares weights among them."
        ),
        N_("Use run.placement: hbm. From Python, give TieredTrainer a list of modules."),
    ),
    Code(
        "ST464",
        N_("step ended in the middle"),
        N_(
            "An interrupt or an error ended an earlier step while units were being updated, so some are old and some new. Going on would train on a mixture."
        ),
        N_("Load the last checkpoint and go on from its step."),
    ),
    Code(
        "ST465",
        N_("gradient not finite, without clipping"),
        N_(
            "Without clipping each unit is updated in backward, before all gradients are known; units above the one whose gradient is not finite were updated already."
        ),
        N_("Resume from the last checkpoint; with train.max_grad_norm above 0 such a step changes nothing."),
    ),
    Code(
        "ST466",
        N_("schedule too large for the device"),
        N_("What the schedule keeps in GPU memory for good is more than its budget; told before anything is moved."),
        N_("Let more leave the GPU, or raise hardware.hbm_gb."),
    ),
    Code(
        "ST467",
        N_("optimizer without tiers"),
        N_("The tier engine's update kernels are AdamW's; other optimizers run with everything in GPU memory."),
        N_("Use train.optimizer: adamw, or run.placement: hbm."),
    ),
    Code(
        "ST468",
        N_("checkpoint of the other engine"),
        N_("The run began under run.placement: hbm and goes on under tiers, or the other way round."),
        N_("Pin run.placement to what the run began with."),
    ),
)
