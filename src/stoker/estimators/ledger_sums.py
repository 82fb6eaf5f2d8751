"""A ledger summed once: bytes per rank that do not depend on the batch, and per-token figures of each unit.

The planner tries many batch sizes of one ledger, so what a batch cannot change is added up here. Units: bytes per
rank for state, bytes per computed token for activations, FLOP per token for work.
"""

from dataclasses import dataclass

from stoker.core.ledger import Attention, Ledger, ModuleGroup, SavedTensor

MASTER_PIECE = 64 * 2**20  # techniques/precision/masters.py, which needs torch
FP32_BYTES = 4.0
_USUAL_RANK = 16.0  # where the shapes of the adapters are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSums:
    """Sums over a unit's matrices (`depth` x `columns`, inputs x outputs; every copy, and the copies a token takes).

    A product costs its FLOPs, one unfilled wave of tiles along its depth, and one pipeline fill for each output, so
    these sums give the time of all of them at once (docs/math.md, section 2). `flops`: 2 a multiply-add, a token.
    `dtype`: None means the ledger's. `cast_elements`: a token's inputs that are cast to `dtype` in each pass.
    """

    flops: float = 0.0
    depth: float = 0.0
    columns: float = 0.0
    taken: float = 0.0
    taken_depth: float = 0.0
    taken_columns: float = 0.0
    weights: float = 0.0
    copies: float = 0.0
    dtype: str | None = None
    cast_elements: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSums:
    """One module group (a copy of it; `repeats` copies).

    `saved_bytes` per token, `saved_bytes_per_key` per token and key position,
    `saved_bytes_per_sample` once a sample, `saved_bytes_once` once a micro-batch; `input_bytes`: per token, kept at a
    recompute boundary. `learning_frac`: share of the matrix parameters that get a weight gradient.
    For memory: `kept_bytes` per token, beside the input at a recompute boundary; `widest_bytes` per token, the widest
    activation, whose gradients come and go; `inner_bytes` per token, what the feed-forward half keeps;
    `scores_temp_bytes` per token and key, gradients of eager attention's scores; `temp_bytes`, once, of a quantised or
    adapted linear at work; `expanded_bytes` per token, keys and values copied to every query head; `weight_elements`
    of its matrices.
    `products`: its matrix products; `map_flops`: work outside matrices (convolutions), FLOP a token. `loose_kernels`:
    launches over its width that keep nothing.
    """

    name: str
    kind: str
    repeats: int
    saved_bytes: float
    saved_bytes_per_key: float
    saved_bytes_per_sample: float
    saved_bytes_once: float
    input_bytes: float
    matmul_flops: float
    adapter_flops: float
    learning_frac: float
    products: ProductSums
    map_flops: float
    attention: Attention | None
    num_kernels: int
    weight_bytes: float
    cast_bytes: float
    dense_grad_bytes: float
    recomputed: bool
    in_backward: bool
    products_again_frac: float
    attention_again: bool
    host_bytes: float
    quantised_bytes: float
    dequantised_bytes: float
    adapter_elements: float
    loose_kernels: float
    kept_bytes: float
    widest_bytes: float
    inner_bytes: float
    scores_temp_bytes: float
    temp_bytes: float
    expanded_bytes: float
    weight_elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSums:
    """State per rank in bytes, and the units.

    `accumulator_bytes`: fp32 sums beside narrower gradients. `step_temp_bytes`: transient of an optimizer step.
    """

    params_bytes: float
    grads_bytes: float
    accumulator_bytes: float
    step_temp_bytes: float
    optimizer_bytes: float
    weights_unsharded_bytes: float
    trainable_params: int
    units: tuple[UnitSums, ...]


def sum_ledger(ledger: Ledger) -> LedgerSums:
    """Sums of `ledger`. Bytes per parameter as the passes left them; shards divide what they shard."""
    params = grads = states = unsharded = local = sums = 0.0
    for group in ledger.groups:
        weights = group.num_params * group.weight_bytes_per_param + group.adapter_params * group.adapter_bytes_per_param
        gradient = _grad_bytes(group)
        state = group.state_bytes + group.base_trainable * group.master_bytes_per_param
        params += group.repeats * weights / group.weight_shards
        grads += group.repeats * gradient / group.grad_shards
        states += group.repeats * state / group.state_shards
        unsharded += group.repeats * weights
        local += group.repeats * group.trainable / group.state_shards
        if ledger.accumulates_fp32 and group.grad_bytes_per_param < 4.0:
            sums += group.repeats * 4.0 * group.base_trainable / group.grad_shards
    return LedgerSums(
        params_bytes=params,
        grads_bytes=grads,
        accumulator_bytes=sums,
        step_temp_bytes=_step_temp(ledger, local),
        optimizer_bytes=states,
        weights_unsharded_bytes=unsharded,
        trainable_params=ledger.num_trainable,
        units=tuple(_sum_unit(group, ledger) for group in ledger.groups),
    )


def _step_temp(ledger: Ledger, local: float) -> float:
    """Transient of an optimizer step: of every parameter, of the tensor at work, and masters' fp32 gradients.

    Masters step in pieces of `MASTER_PIECE` elements (one larger tensor alone), each with its gradient in fp32.
    """
    mastered = [group for group in ledger.groups if group.master_bytes_per_param > 0.0 and group.base_trainable > 0]
    shards = max((group.state_shards for group in ledger.groups), default=1)
    largest = max((_largest_tensor(group) for group in mastered), default=0)
    piece = min(max(largest / shards, MASTER_PIECE), local) * FP32_BYTES if mastered else 0.0
    return local * ledger.step_temp_bytes_per_param + max(ledger.step_temp_bytes / shards, piece)


def _largest_tensor(group: ModuleGroup) -> int:
    tables = [rows * width for rows, width in group.tables]
    return max([lin.in_features * lin.out_features for lin in group.linears] + tables, default=0)


def _grad_bytes(group: ModuleGroup) -> float:
    return group.base_trainable * group.grad_bytes_per_param + group.adapter_params * group.adapter_bytes_per_param


def _casts(group: ModuleGroup) -> int:
    """Launches that autocast adds in one forward: a cast of each weight and each bias."""
    return sum(lin.count * (2 if lin.bias else 1) for lin in group.linears)


def _sum_unit(group: ModuleGroup, ledger: Ledger) -> UnitSums:
    saved = per_key = per_sample = 0.0
    for tensor in group.saved:
        size = _size(tensor, ledger)
        if tensor.per_key:
            per_key += size
        elif tensor.per_sample:
            per_sample += size
        else:
            saved += size
    return UnitSums(
        name=group.name,
        kind=group.kind,
        repeats=group.repeats,
        saved_bytes=saved,
        saved_bytes_per_key=per_key,
        saved_bytes_per_sample=per_sample,
        saved_bytes_once=sum(tensor.fixed_bytes(ledger.compute_bytes) for tensor in group.saved),
        input_bytes=group.input_elements * ledger.compute_bytes,
        matmul_flops=group.flops_per_token,
        adapter_flops=group.adapter_flops_per_token,
        learning_frac=_learning_frac(group, ledger),
        products=_products(group),
        map_flops=group.extra_flops_per_token,
        attention=group.attention,
        num_kernels=group.num_kernels + (_casts(group) if group.cast_bytes else 0),
        weight_bytes=sum(linear.num_params for linear in group.linears) * ledger.compute_bytes,
        cast_bytes=float(group.cast_bytes),
        dense_grad_bytes=_grad_bytes(group) if group.kind == "embedding" else 0.0,
        recomputed=group.recomputed,
        in_backward=group.in_backward,
        products_again_frac=group.products_again_frac,
        attention_again=group.attention_again,
        host_bytes=group.input_elements * ledger.compute_bytes if group.inputs_on_host else 0.0,
        quantised_bytes=group.quantised_bytes,
        dequantised_bytes=group.dequantised_bytes,
        adapter_elements=_adapter_elements(group),
        loose_kernels=_loose_kernels(group),
        kept_bytes=group.kept_elements * ledger.compute_bytes,
        widest_bytes=_widest(group, ledger),
        inner_bytes=sum(_size(t, ledger) for t in group.saved if t.role == "activation_input"),
        scores_temp_bytes=_scores_temp(group, ledger),
        temp_bytes=group.dequantised_temp_bytes + group.adapter_temp_bytes,
        expanded_bytes=_expanded(group.attention) * ledger.compute_bytes,
        weight_elements=sum(linear.num_params for linear in group.linears),
    )


def _expanded(attention: Attention | None) -> float:
    if attention is None:
        return 0.0
    copies = attention.num_heads - attention.num_kv_heads
    return float(copies * (attention.head_dim + (attention.value_head_dim or attention.head_dim)))


def _size(tensor: SavedTensor, ledger: Ledger) -> float:
    return tensor.bytes_per_token(ledger.compute_bytes, 1.0)


def _widest(group: ModuleGroup, ledger: Ledger) -> float:
    """Bytes a token of what is widest at work in a block, half of its gradients' two.

    With experts also half of what dispatch holds in backward: gradients of the gathered inputs and of the outputs,
    and the outputs weighed in fp32.
    """
    dispatched = sum(t.elements for t in group.saved if t.name == "experts.output")
    widest = max((_size(t, ledger) for t in group.saved if t.role == "activation_input"), default=0.0)
    return widest + dispatched * (2.0 * ledger.compute_bytes + FP32_BYTES) / 2.0


def _scores_temp(group: ModuleGroup, ledger: Ledger) -> float:
    """Bytes a token and key of the gradients alive in eager attention's backward.

    The gradient into the softmax's output in its own format, its narrow form before that where the two differ, and
    the gradient out of it (torch's eager attention; pinned on a T4's measured peaks in tests/golden).
    """
    total = 0.0
    for tensor in group.saved:
        if tensor.per_key and tensor.name == "softmax":
            width = ledger.compute_bytes if tensor.bytes_per_element is None else tensor.bytes_per_element
            narrow = ledger.compute_bytes if width > ledger.compute_bytes else 0.0
            total += tensor.elements * (width + narrow + ledger.compute_bytes)
    return total


def _products(group: ModuleGroup) -> ProductSums:
    dense = [(lin.in_features, lin.out_features, lin.count, lin.count * lin.active_frac) for lin in group.linears]
    return ProductSums(
        flops=sum(2.0 * inputs * outputs * taken for inputs, outputs, _count, taken in dense),
        depth=float(sum(inputs * count for inputs, _outputs, count, _taken in dense)),
        columns=float(sum(outputs * count for _inputs, outputs, count, _taken in dense)),
        taken=sum(taken for _inputs, _outputs, _count, taken in dense),
        taken_depth=sum(inputs * taken for inputs, _outputs, _count, taken in dense),
        taken_columns=sum(outputs * taken for _inputs, outputs, _count, taken in dense),
        weights=float(sum(inputs * outputs * count for inputs, outputs, count, _taken in dense)),
        copies=float(sum(count for _inputs, _outputs, count, _taken in dense)),
        dtype=group.matmul_dtype,
        cast_elements=group.matmul_cast_elements,
    )


def _learning_frac(group: ModuleGroup, ledger: Ledger) -> float:
    """Share of the matrices that learn; a tied head owns none and learns where the embedding does."""
    if group.num_params > 0:
        return group.base_trainable / group.num_params
    owner = "conv" if group.kind == "conv" else "embedding"
    return 1.0 if any(g.kind == owner and g.base_trainable > 0 for g in ledger.groups) else 0.0


def _loose_kernels(group: ModuleGroup) -> float:
    """Element-wise launches of one forward that keep nothing for backward: an eager RMSNorm's steps, rotary factors."""
    if group.kind == "conv":
        return 0.0
    fused = group.attention is not None and not any(tensor.per_key for tensor in group.saved)
    return float(max(group.num_kernels - len(group.linears) - fused - len(group.saved), 0))


def _adapter_elements(group: ModuleGroup) -> float:
    """Inputs plus outputs of the adapted linears: what a token's adapters read and write, in elements."""
    if group.adapter_shapes:
        return float(sum(max(shape) for shape in group.adapter_shapes if len(shape) > 1))
    return group.adapter_flops_per_token / (2.0 * _USUAL_RANK)
