"""Codes of the techniques, across the ranges: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST280",
        N_("nothing to recompute"),
        N_("Recomputation works on repeated blocks; this model's code declares none."),
        N_("Set run.recompute: none, and lower run.micro_batch_size if memory is short."),
    ),
    Code(
        "ST281",
        N_("nothing to adapt"),
        N_("An adapter sits beside linear layers inside the model's blocks; none of them matches tune.targets."),
        N_("Use tune.targets: all-linear, or name linears as the model's code does; convolutional networks: full."),
    ),
    Code(
        "ST282",
        N_("nothing to freeze"),
        N_("A prefix in tune.freeze matches no parameter, so it would silently train what was meant to stay."),
        N_("Use one of the module names in the message, with or without the base model's name before it."),
    ),
    Code(
        "ST283",
        N_("nothing learns"),
        N_("tune.freeze names every part of the model, so a run would cost time and money and change no weight."),
        N_("Leave out the part that should learn: often the head and the last layers."),
    ),
    Code(
        "ST380",
        N_("technique not built"),
        N_("The job pins a technique that the job file knows but this version of stoker does not build."),
        N_("Use one of those named in the message, or auto."),
    ),
    Code(
        "ST381",
        N_("loss of another program"),
        N_("This way of computing the loss is priced to predict other people's runs; the engine does not build it."),
        N_("Use run.loss: eager, chunked, liger or cce."),
    ),
    Code(
        "ST382",
        N_("planned, not run"),
        N_(
            "Tensor, context, expert and pipeline parallel, ZeRO 1 and 2, HSDP, DataParallel, layer splits and memory "
            "tiers in some forms are priced, so that a plan can compare them, and so are vision-language models; this "
            "version's engine builds none of them."
        ),
        N_(
            "Pin dp_replicate (DDP) or dp_shard (FSDP) alone, and run.placement: hbm; or remove the pins. Of a "
            "vision-language model, the language model alone can be trained."
        ),
    ),
    Code(
        "ST580",
        N_("no 4-bit weights here"),
        N_("qlora stores the frozen weights in 4 bits through bitsandbytes, which is not installed."),
        N_("Install bitsandbytes, or use tune.method: lora."),
    ),
    Code(
        "ST581",
        N_("flash-attn missing"),
        N_("run.attention: flash runs kernels of the package flash-attn, which is not installed."),
        N_("Install flash-attn, or use run.attention: sdpa, which needs the same memory."),
    ),
    Code(
        "ST582",
        N_("bitsandbytes missing"),
        N_("8-bit and paged optimizer states are those of bitsandbytes, which is not installed."),
        N_("Install bitsandbytes, or use train.optimizer: adamw."),
    ),
    Code(
        "ST588",
        N_("torchao missing"),
        N_("run.precision: fp8 multiplies through torchao, which is not installed."),
        N_("Install torchao, or use run.precision: bf16."),
    ),
    Code(
        "ST585",
        N_("loss kernel missing"),
        N_(
            "run.loss: liger and run.loss: cce run kernels of the packages liger-kernel and cut-cross-entropy on a CUDA GPU, through a head that is a plain linear layer."
        ),
        N_("Install the package, or use run.loss: chunked, which needs no package and little more memory."),
    ),
)
