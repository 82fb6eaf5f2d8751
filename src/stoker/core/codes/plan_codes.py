"""Codes of plan: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST301",
        N_("GPU name unknown or of several products"),
        N_(
            "H100 is three products (SXM, PCIe, NVL) whose peaks differ by up to a third and whose memory differs too; a plan for one is wrong for the others. So a name must mean exactly one product of the table."
        ),
        N_("Write one of the names in the message; `stoker offers` shows them beside their prices."),
    ),
    Code(
        "ST302",
        N_("not a table of offers"),
        N_("The price file cannot be read, or lacks a column. It is a CSV in UTF-8 with one offer a row."),
        N_("Give it the columns in the message; empty cells are fine where a value is unknown."),
    ),
    Code(
        "ST303",
        N_("provider or region without offers"),
        N_("No offer of the price snapshot has this provider or region."),
        N_("Use one of the names in the message."),
    ),
    Code(
        "ST304",
        N_("no exchange rate"),
        N_("The bundled rates, each with its date, do not have this currency."),
        N_("Use one of the currencies in the message."),
    ),
    Code(
        "ST320",
        N_("does not fit in memory"),
        N_(
            "The configuration that needs the least of this GPU's memory still needs more than a process can see of it, or fits with a probability under one half. Reserved memory and the device context count, and the longest batch of the data sets the peak."
        ),
        N_("The line names what would fit: more GPUs with FSDP, LoRA instead of full tuning, or a larger GPU."),
    ),
    Code(
        "ST321",
        N_("the global batch does not divide"),
        N_(
            "train.global_batch_size is part of the learning curve, so no number of GPUs may change it. It must be a multiple of the data-parallel ranks (times run.micro_batch_size where that is pinned)."
        ),
        N_("Use another number of GPUs, or the nearest batch in the message."),
    ),
    Code(
        "ST322",
        N_("the GPU cannot do this number format or kernel"),
        N_(
            "bf16 and FlashAttention-2 need compute capability 8.0, fp16 matrix units 7.0. A T4 or V100 emulates bf16 many times slower than it computes fp16, whatever a permissive query says."
        ),
        N_("Leave run.precision and run.attention at auto: each GPU then gets what it can do."),
    ),
    Code(
        "ST323",
        N_("not offered yet"),
        N_(
            "The job pins a technique that this version can neither price nor run: packed sequences, or a compiled step."
        ),
        N_("Use what the message names, or remove the pin."),
    ),
    Code(
        "ST324",
        N_("the number of GPUs and the pins do not go together"),
        N_(
            "The pinned degrees make up another number of GPUs, one machine has fewer, or the machines would hold unlike numbers."
        ),
        N_("Pin hardware.num_gpus to the product of the degrees, or remove one of the pins."),
    ),
    Code(
        "ST325",
        N_("misses the deadline"),
        N_(
            "The expected time of the whole run (boot, download, steps, evaluation, saves) is longer than goal.deadline_hours."
        ),
        N_("Allow more time, more GPUs or faster ones."),
    ),
    Code(
        "ST326",
        N_("exceeds the budget"),
        N_("The expected cost at the cheapest offer is above goal.budget_usd."),
        N_("Allow more money or more time; the table shows what each way costs."),
    ),
    Code(
        "ST327",
        N_("this machine's GPU is not in the table"),
        N_(
            "hardware.here found a GPU whose peak and bandwidth the catalogue does not know. Estimates with another product's figures would be guesses."
        ),
        N_("Name the nearest product under hardware.gpus to get an estimate, and report the GPU's name."),
    ),
    Code(
        "ST328",
        N_("not a plan file"),
        N_("The file is no plan that `stoker plan -o` wrote, is cut off, or comes from a newer version."),
        N_("Write it again: stoker plan JOB -o plan.json."),
    ),
    Code(
        "ST329",
        N_("the plan cannot be written"),
        N_("The folder of -o does not exist, is read-only or is full."),
        N_("Choose a folder that exists and has room."),
    ),
    Code(
        "ST330",
        N_("the host is too small for the tiers"),
        N_(
            "Memory tiers move training state to the machine's DRAM and flash; what they would hold does not fit there."
        ),
        N_("Name flash under hardware.nvme, raise the cap hardware.dram_gb, or use more GPUs."),
    ),
    Code(
        "ST331",
        N_("the model cannot be cut like this"),
        N_("Tensor parallel divides heads and stays within fast links, pipelines divide layers, experts divide by ep."),
        N_("Pin degrees that divide what they cut, or remove run.parallel."),
    ),
    Code(
        "ST332",
        N_("optimizer needs whole matrices"),
        N_(
            "Muon orthogonalises each matrix as a whole; under FSDP a rank holds a shard of it, and gathering is not built."
        ),
        N_("Use DDP (run.parallel: {dp_replicate: N}) or one GPU, or another optimizer."),
    ),
    Code(
        "ST333",
        N_("no published peak"),
        N_(
            "The maker has not said how fast this product computes, and another product's figure would be a guess, so neither time nor cost can be predicted."
        ),
        N_("Name a product with a known peak under hardware.gpus; `stoker size` still tells what fits its memory."),
    ),
)
