"""Stack: what a training program does that the maths leaves open, as facts (which loss, which dtype) and few factors.

Plans of our own engine use `OURS`. Published measurements use a row of catalogue/data/stacks.csv, found by source;
a source that nobody described gets the row `*`, a modern Hugging Face style trainer.
"""

from dataclasses import dataclass
from typing import Literal

Reading = Literal["allocated", "reserved", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Implementation facts of one training program.

    `loss`: its loss kernel. `half_precision`: what it means by a bare bf16 or fp16 (a precision, for full tuning);
    `adapter_precision`: likewise under adapters. `attention`, `recompute`, `capture`, `packing`, `lora_rank`,
    `lora_targets`, `lora_dropout`: what it does where a table does not say. `memory_reading`: what a bare GB counts.
    `overlong`: whether samples beyond seq_len are cut or dropped. `pipeline_micro_batch`: samples of a pipeline's
    micro-batch where the table prints the local batch instead; None: the table's figure.
    `time_factor`: its step over what the formulas give; `time_spread_frac`: what that misses at 90 %, None: the
    hardware family's own. `traffic_frac`: element-wise bytes over an unfused eager loop's (fused norms, activations).
    `kbit_in_fp32`: what quantisation leaves of the weights is stored in fp32; `kbit_runs_in_fp32`: it, and attention,
    also run in fp32 (no autocast). `waits_for_data`: its figures
    hold the loader's time (published speeds are of synthetic or cached data). `pads_by_batch`: without packing, a
    micro-batch of random samples is padded to its own longest. `flash_always`: its fused attention also takes models
    for which transformers knows only kernels that write the scores (ALiBi). `channels_last`: its images lie as
    tensor-core convolutions want them (PyTorch's default is channels first). `fused_dispatch`: inside one NVLink domain
    a kernel of its own sends tokens to experts (Megatron's HybridEP). `host_frac`: its launches over a usual host's;
    ours lies between two virtual machines with an H200, at 1.0 and 1.5.
    Memory: `holds_logits`: the model's output object, and with it the logits, lives through backward. `keeps_grads`:
    gradients are zeroed, not dropped, between steps. `expandable_segments`: of torch's allocator.
    `accumulates_fp32`: 16-bit gradients of several micro-batches add up in an fp32 copy. `kbit_keeps_inputs`: copies
    of a quantised product's input that it keeps, needed or not. `fused_norms`: norms keep their input in the compute
    format. `fsdp_casts`: bf16_amp is FSDP's casting of gathered weights and inputs, not autocast, so the stream between
    blocks is 16-bit: where state is `sharded`, or `always` (on one GPU too). `gathers_frozen`: under FSDP frozen
    weights, once gathered, stay (FSDP1 has no hook to free them).
    `frozen_in_fp32`: frozen weights are stored in fp32 and cast for compute. `own_head`: a tied head has a matrix of
    its own. `keeps_outputs`: a learned scale on every linear keeps its output.
    `narrow_adapters`: adapters in the compute format. `fused_qkv`: one projection, whose whole output values keep alive
    beside rotated queries and keys. `foreach_step`: AdamW over all tensors at once, with
    a transient as large as one moment. `expert_adapters`: sets of adapters that every expert has too (0: none).
    `wide_activations`: everything that backward needs is kept in fp32 (early mixed precision, GELU step by step).
    `accumulates_unsharded`: FSDP1 without synchronisation between the micro-batches of a step. `is_guess`: nobody
    described the program, or nobody measured it, so intervals are wider. `bucket_gb`: fixed buckets of reduced and
    gathered state, GB.
    `flash_frac`: rate of its fused attention over FlashAttention 2's.
    `binned_frac`: from 512 tokens on, computed over stated length of a text that it sorts into bins of like
    length.
    `quantised_experts`: experts are linears of their own, which quantisation takes (transformers before 5).
    `steps_in_backward`: each gradient is applied and dropped as soon as it is there.
    `usual_unevenness`: longest over mean length of its batches where a table does not say.
    """

    name: str
    loss: str = "eager"
    half_precision: str = "bf16_amp"
    adapter_precision: str = "bf16_pure"
    attention: str = "sdpa"
    recompute: str = "none"
    capture: str = "none"
    packing: str = "none"
    lora_rank: int = 16
    lora_targets: str = "all-linear"
    lora_dropout: float = 0.0
    memory_reading: Reading = "reserved"
    overlong: Literal["cut", "drop"] = "cut"
    pipeline_micro_batch: int | None = None
    time_factor: float = 1.0
    time_spread_frac: float | None = None
    traffic_frac: float = 1.0
    kbit_in_fp32: bool = False
    kbit_runs_in_fp32: bool = False
    waits_for_data: bool = False
    pads_by_batch: bool = False
    flash_always: bool = False
    channels_last: bool = False
    flash_frac: float = 1.0
    fused_dispatch: bool = False
    host_frac: float = 1.0
    holds_logits: bool = True
    keeps_grads: bool = False
    expandable_segments: bool = False
    accumulates_fp32: bool = False
    kbit_keeps_inputs: int = 0
    fused_norms: bool = False
    fsdp_casts: Literal["", "sharded", "always"] = ""
    gathers_frozen: bool = False
    frozen_in_fp32: bool = False
    own_head: bool = False
    keeps_outputs: bool = False
    narrow_adapters: bool = False
    fused_qkv: bool = False
    foreach_step: bool = False
    expert_adapters: int = 0
    wide_activations: bool = False
    accumulates_unsharded: bool = False
    is_guess: bool = False
    bucket_gb: float = 0.0
    usual_unevenness: float = 1.0
    binned_frac: float = 1.0
    quantised_experts: bool = False
    steps_in_backward: bool = False
    origin: str = ""
    date: str = ""


OURS = Stack(
    name="stoker",
    holds_logits=False,
    accumulates_fp32=True,
    half_precision="bf16",
    adapter_precision="bf16",
    packing="bucketed",
    waits_for_data=True,
    host_frac=1.25,
)
