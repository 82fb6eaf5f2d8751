"""The ledger: a model as module groups, before and after the techniques have passed over it.

Sizes are per single copy of a group; `repeats` says how many identical copies there are. Activations are
counted per token (for images: per patch, or per image where a network has no token axis).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

GroupKind = Literal["embedding", "block", "norm", "head", "conv"]
SavedRole = Literal[
    "linear_input", "norm_input", "attention", "activation_input", "scores", "mask", "adapter_input", "other"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """`count` identical matrices of `in_features x out_features` (experts of an MoE layer: count = experts).

    `active_frac`: share of the copies that one token passes through (top_k / num_experts; 1 when dense).
    """

    name: str
    in_features: int
    out_features: int
    bias: bool = False
    count: int = 1
    active_frac: float = 1.0

    @property
    def num_params(self) -> int:
        return self.count * (self.in_features * self.out_features + (self.out_features if self.bias else 0))

    @property
    def flops_per_token(self) -> float:
        """Forward FLOPs of one token: 2 per multiply-add."""
        return 2.0 * self.count * self.active_frac * self.in_features * self.out_features


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention of one block. `window`: sliding-window length, None for full attention.

    `value_head_dim`: of values, where it is not that of queries and keys. `kv_cache_elements`: what a token leaves in
    the cache of a layer, where that is not keys and values of the key-value heads (multi-head latent attention).
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool
    window: int | None = None
    value_head_dim: int | None = None
    kv_cache_elements: int | None = None

    def flops_per_token(self, seq_len: float) -> float:
        """Forward FLOPs of scores and values for one token of a sequence of `seq_len` (causal: half)."""
        span = min(seq_len, float(self.window)) if self.window else seq_len
        widths = self.head_dim + (self.value_head_dim or self.head_dim)
        return 2.0 * span * self.num_heads * widths * (0.5 if self.causal else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """A tensor that autograd keeps for backward.

    `elements`: per token, or per token and key position where `per_key` (eager attention scores).
    `bytes_per_element`: None means the compute dtype. `linear`: for role linear_input, which linears need it:
    when all of those are frozen, it is not saved. `only_below_fp32`: a cast copy, which exists only where the
    compute dtype is narrower than fp32. `per_sample`: counted once a sample, not once a token. `once`: whatever the
    batch (a copy of a weight): `bytes_per_token` leaves it out, `fixed_bytes` is it.
    """

    name: str
    role: SavedRole
    elements: float
    bytes_per_element: float | None = None
    per_key: bool = False
    linears: tuple[str, ...] = ()
    only_below_fp32: bool = False
    per_sample: bool = False
    once: bool = False

    def bytes_per_token(self, compute_bytes: float, key_len: float) -> float:
        """Bytes kept for one token of a sample with `key_len` tokens (so many keys has its row of the scores)."""
        if self.once or (self.only_below_fp32 and compute_bytes >= 4.0):
            return 0.0
        width = compute_bytes if self.bytes_per_element is None else self.bytes_per_element
        share = 1.0 / max(key_len, 1.0) if self.per_sample else 1.0
        return self.elements * width * share * (key_len if self.per_key else 1.0)

    def fixed_bytes(self, compute_bytes: float) -> float:
        """Bytes kept whatever the batch."""
        if not self.once or (self.only_below_fp32 and compute_bytes >= 4.0):
            return 0.0
        return self.elements * (compute_bytes if self.bytes_per_element is None else self.bytes_per_element)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleGroup:
    """One unit of a model (embedding, block, final norm, head), `repeats` times.

    From the catalogue: `num_params`, `linears`, `attention`, `saved`, `input_elements` (per token, kept at a
    recompute boundary), `extra_flops_per_token` (convolutions), `num_kernels` (launches of one forward).
    Filled by passes: everything from `trainable_params` on; bytes are per parameter.

    Quantised weights: each forward, backward and recomputation of one copy reads `quantised_bytes` and moves
    2 x `dequantised_bytes` (write, then read); one temporary of `dequantised_temp_bytes` stands at a time.
    `inputs_on_host`: repeats x input bytes cross PCIe once each way in a micro-batch and lie in host memory meanwhile.
    """

    name: str
    kind: GroupKind
    num_params: int
    repeats: int = 1
    linears: tuple[Linear, ...] = ()
    attention: Attention | None = None
    saved: tuple[SavedTensor, ...] = ()
    input_elements: float = 0.0
    extra_flops_per_token: float = 0.0
    num_kernels: int = 1
    tables: tuple[tuple[int, int], ...] = ()  # look-up tables (rows, width), parameters of an embedding group
    # filled by technique passes
    trainable_params: int | None = None  # None: all of num_params
    adapter_params: int = 0  # extra trainable parameters (LoRA), each of `adapter_bytes_per_param`
    adapter_flops_per_token: float = 0.0
    weight_bytes_per_param: float = 4.0
    master_bytes_per_param: float = 0.0  # per trainable parameter, beside the weight
    grad_bytes_per_param: float = 4.0  # per trainable parameter
    adapter_bytes_per_param: float = 4.0
    state_bytes: int = 0  # optimizer state of one copy, unsharded
    weight_shards: float = 1  # data-parallel ranks that share one copy (experts and the rest together: their mean)
    grad_shards: float = 1
    state_shards: float = 1
    expert_ranks: int = 1  # ranks over which its experts are spread; its linears and num_params are a rank's own
    expert_params: int = 0  # of num_params, what belongs to experts, where expert_ranks > 1
    cast_bytes: int = 0  # narrow weight copies of one copy that autocast keeps from forward to backward
    recomputed: bool = False
    in_backward: bool = True  # False: frozen with nothing that learns below it, so backward ends above it
    weights_quantised: bool = False  # weight_bytes_per_param is set by the adapter (nf4); precision leaves it
    unquantised_bytes_per_param: float = 2.0  # weights_quantised: of those parameters that are not in 4 bits
    quantised_bytes: float = 0.0  # packed weights and scales of one copy: read whole by every pass over it
    dequantised_bytes: float = 0.0  # their 16-bit copies, written and read again by every pass over one copy
    dequantised_temp_bytes: float = 0.0  # the largest such copy: alive while its linear is at work
    adapter_temp_bytes: float = 0.0  # transient of the largest adapted linear (DoRA's weight norm), forward and again
    matmul_dtype: str | None = None  # format of its linears' products where it is not the ledger's compute_dtype (fp8)
    matmul_cast_elements: float = 0.0  # per token and pass: linear inputs cast to `matmul_dtype` (read twice, written)
    inputs_on_host: bool = False  # recomputed, and the kept input goes to host memory: two copies' inputs on the device
    kept_elements: float = 0.0  # per token, kept beside the input at a recompute boundary (selective: product outputs)
    products_again_frac: float = 1.0  # of its matrix products' FLOP that a recomputed block runs again
    attention_again: bool = True  # and whether attention is among what it runs again
    adapted: tuple[str, ...] = ()  # names of the linears with an adapter
    adapter_shapes: tuple[tuple[int, ...], ...] = ()  # of one copy's adapter tensors; their sizes sum to adapter_params

    @property
    def trainable(self) -> int:
        """Trainable parameters of one copy, adapters included."""
        base = self.num_params if self.trainable_params is None else self.trainable_params
        return base + self.adapter_params

    @property
    def base_trainable(self) -> int:
        """Trainable parameters of one copy without adapters."""
        return self.num_params if self.trainable_params is None else self.trainable_params

    @property
    def flops_per_token(self) -> float:
        """Forward FLOPs of one token through one copy, attention scores apart."""
        return sum(linear.flops_per_token for linear in self.linears) + self.extra_flops_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArch:
    """A model's shape. Field names as in Hugging Face configs; `groups` is its untouched ledger.

    `num_outputs`: width of the last layer (vocabulary for causal_lm, labels for classification).
    `tokens_per_sample`: images only: patches (+ class token), or 1 for a convolutional network.
    `vocab_size`, positions: None where the network has none. `is_approximate`: groups leave out what a part
    of the model computes, so intervals widen and nothing runs it.
    """

    name: str
    family: str
    modality: Literal["text", "image"]
    hidden_size: int
    num_hidden_layers: int
    groups: tuple[ModuleGroup, ...]
    num_outputs: int
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    image_size: int | None = None
    tokens_per_sample: int | None = None
    tie_word_embeddings: bool = False
    dropout: float = 0.0
    hub_id: str | None = None
    source: str = ""
    is_approximate: bool = False

    @property
    def num_params(self) -> int:
        """All parameters, tied weights once."""
        return sum(group.repeats * group.num_params for group in self.groups)

    @property
    def active_params(self) -> int:
        """Parameters that one token passes through (MoE: only the chosen experts)."""
        idle = sum(
            g.repeats * round(lin.num_params * (1.0 - lin.active_frac)) for g in self.groups for lin in g.linears
        )
        return self.num_params - idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A model under a run configuration: groups after the passes so far, and what holds for all of them.

    `compute_bytes`: bytes of one activation element. `autocast`: fp32 weights cast on the fly.
    `accumulates_fp32`: every trainable parameter
    whose gradient is narrower than 4 bytes has an fp32 accumulator beside it (4 bytes more, sharded as the gradient).
    `step_temp_bytes_per_param`: transient of an optimizer step beyond gradients and state (case 4).
    `step_flops`: matrix products of one optimizer step over the whole model, unsharded (Muon; 0 for others).
    `step_temp_bytes`: transient of the one tensor that is stepped at a time, the largest (Adafactor, Lion, Muon).
    `states_may_page`: optimizer state lies in managed memory, which moves to the host when the GPU is short.

    Filled by the parallel pass, after which the groups are *one rank's own*: tensor and expert parallel divide
    parameters, linears, attention heads and saved elements of a group, pipeline parallel its repeats; only what ranks
    of data parallel share is left in the group's `..._shards`. So sums over the groups need no division by a degree.
    `token_shards`: ranks that share a sample's tokens (cp); batches of `estimators/scenario.py` are already divided.
    `in_flight`: micro-batches whose kept activations may stand together (pipeline), where a step has so many.
    `rank_outputs`: columns of the logits on this rank; read `num_outputs`.
    `stages`: the ledgers of unlike GPUs of a pipeline or a layer split (the first and the last): memory is that of
    the fullest of them, time that of the ledger itself (`estimators/stages.py`).
    `all_trainable`: trainable parameters of the whole model, where the groups hold a part of it.
    """

    arch: ModelArch
    groups: tuple[ModuleGroup, ...]
    compute_dtype: str = "fp32"
    compute_bytes: float = 4.0
    autocast: bool = False
    accumulates_fp32: bool = False
    step_temp_bytes_per_param: float = 0.0
    step_flops: float = 0.0
    step_temp_bytes: float = 0.0
    states_may_page: bool = False
    passes: tuple[str, ...] = field(default=())
    token_shards: int = 1
    in_flight: float = 1.0
    rank_outputs: int | None = None
    stages: tuple["Ledger", ...] = ()
    all_trainable: int | None = None

    def map_groups(self, change: Callable[[ModuleGroup], ModuleGroup], *, by: str) -> "Ledger":
        """The ledger with `change` applied to every group; `by` is recorded in `passes`."""
        return replace(self, groups=tuple(change(g) for g in self.groups), passes=(*self.passes, by))

    @property
    def num_trainable(self) -> int:
        """Trainable parameters of the whole model."""
        if self.all_trainable is not None:
            return self.all_trainable
        return sum(g.repeats * g.trainable for g in self.groups)

    @property
    def num_outputs(self) -> int:
        """Columns of the logits on this rank."""
        return self.arch.num_outputs if self.rank_outputs is None else self.rank_outputs

    @property
    def num_adapter_params(self) -> int:
        return sum(g.repeats * g.adapter_params for g in self.groups)


def untouched(arch: ModelArch) -> Ledger:
    """The ledger of `arch` before any technique: fp32, all trainable, one device."""
    return Ledger(arch=arch, groups=arch.groups)
