"""A ledger as another training program holds it: what differs from our engine's passes is fact, not formula.

Applied after all passes and before the sums; facts are fields of `Stack`. Our own engine needs none of it.
"""

from dataclasses import replace

from stoker.core.ledger import Ledger, ModuleGroup, SavedTensor
from stoker.core.stack import Stack

_FP32 = 4.0
_GELU_STEPS = 3.0  # tensors that a GELU written out keeps: as catalogue/models/parts/mlp.py counts gelu_python


def as_stack(
    ledger: Ledger, stack: Stack, *, compiled: bool = False, fused_attention: bool = False, several: bool = False
) -> Ledger:
    """`ledger` with the widths and the saved tensors of `stack`; `compiled`: by torch.compile or a kernel of its own;
    `fused_attention`: the run's attention is a fused kernel, which some programs have for ALiBi too;
    `several`: a step has several micro-batches.

    Frozen weights stay as they were loaded, in 16 bits, also under autocast. Fused or compiled norms keep their input
    in the compute format; compiled activations are computed again in backward.
    """
    adapted = ledger.num_adapter_params > 0
    result = replace(ledger, accumulates_fp32=ledger.accumulates_fp32 and stack.accumulates_fp32)
    result = _weights(result, stack, several=several)
    if adapted:
        result = _adapters(result, stack)
    result = _saved(result, stack, compiled=compiled)
    if fused_attention and stack.flash_always:
        result = result.map_groups(_without_keys, by="flash_always")
    stages = (
        as_stack(stage, stack, compiled=compiled, fused_attention=fused_attention, several=several)
        for stage in result.stages
    )
    return replace(result, stages=tuple(stages))


def _weights(ledger: Ledger, stack: Stack, *, several: bool) -> Ledger:
    """Widths and shards of what is stored."""
    if ledger.num_adapter_params and stack.frozen_in_fp32:
        ledger = ledger.map_groups(lambda group: _stored_in_fp32(group, ledger), by="frozen_in_fp32")
    elif ledger.num_adapter_params and ledger.autocast:
        ledger = ledger.map_groups(lambda group: _as_loaded(group, ledger), by="as_loaded")
    if stack.quantised_experts:
        ledger = ledger.map_groups(_with_quantised_experts, by="quantised_experts")
    if stack.own_head and ledger.arch.tie_word_embeddings:
        ledger = ledger.map_groups(_with_matrix, by="own_head")
    if stack.accumulates_unsharded and several:
        ledger = ledger.map_groups(lambda group: replace(group, grad_shards=1), by="accumulates_unsharded")
    return ledger


def _adapters(ledger: Ledger, stack: Stack) -> Ledger:
    """How many, how wide, and what they make their linears keep."""
    if stack.expert_adapters:
        rank = _rank(ledger)
        ledger = ledger.map_groups(
            lambda group: _with_expert_adapters(group, stack.expert_adapters, rank), by="expert_adapters"
        )
    if stack.narrow_adapters:
        ledger = ledger.map_groups(lambda group: _narrow_adapters(group, ledger.compute_bytes), by="narrow_adapters")
    if stack.keeps_outputs:
        ledger = ledger.map_groups(_with_outputs, by="keeps_outputs")
    return ledger


def _saved(ledger: Ledger, stack: Stack, *, compiled: bool) -> Ledger:
    """What backward finds."""
    quantised = any(group.weights_quantised and group.kind == "block" for group in ledger.groups)
    if quantised and stack.kbit_keeps_inputs:
        ledger = ledger.map_groups(lambda group: _with_inputs(group, stack.kbit_keeps_inputs), by="kbit_keeps_inputs")
    if stack.wide_activations and ledger.compute_bytes < _FP32:
        ledger = ledger.map_groups(lambda group: _wide(group, ledger), by="wide_activations")
    if stack.fused_qkv:
        ledger = ledger.map_groups(_with_fused_qkv, by="fused_qkv")
    if compiled or stack.fused_norms:
        ledger = ledger.map_groups(_fused_norms, by="fused_norms")
    return ledger.map_groups(_fused_activations, by="compiled") if compiled else ledger


def saved_as(ledger: Ledger, other: Ledger) -> Ledger:
    """`ledger` with the saved tensors and block inputs of `other`, the same model under another number format."""
    pairs = zip(ledger.groups, other.groups, strict=True)
    return replace(
        ledger,
        groups=tuple(replace(a, saved=b.saved, input_elements=b.input_elements, cast_bytes=0) for a, b in pairs),
        autocast=False,
        stages=tuple(saved_as(a, b) for a, b in zip(ledger.stages, other.stages, strict=True)),
    )


def _wide(group: ModuleGroup, ledger: Ledger) -> ModuleGroup:
    stream = 1.0 if ledger.autocast else _FP32 / ledger.compute_bytes
    saved = tuple(
        replace(t, bytes_per_element=_FP32, elements=t.elements * (_GELU_STEPS if t.name.endswith(".gelu") else 1.0))
        if t.bytes_per_element is None
        else t
        for t in group.saved
    )
    return replace(group, saved=saved, input_elements=group.input_elements * stream)


def _as_loaded(group: ModuleGroup, ledger: Ledger) -> ModuleGroup:
    """A frozen group in 16 bits, embeddings and stream included (our autocast keeps those in fp32)."""
    if group.weights_quantised or group.base_trainable:
        return group
    narrow = ledger.compute_bytes
    return replace(
        group, weight_bytes_per_param=narrow, cast_bytes=0, input_elements=group.input_elements * narrow / _FP32
    )


def _stored_in_fp32(group: ModuleGroup, ledger: Ledger) -> ModuleGroup:
    """Frozen fp32 weights; autocast makes a narrow copy of each, which backward needs (FSDP casts as it gathers)."""
    if group.base_trainable or group.weights_quantised:
        return group
    casts = sum(linear.num_params for linear in group.linears) * ledger.compute_bytes if ledger.autocast else 0
    return replace(group, weight_bytes_per_param=_FP32, cast_bytes=round(casts))


def _with_quantised_experts(group: ModuleGroup) -> ModuleGroup:
    """Experts at the dense linears' bytes a parameter, where they are linears that quantisation replaces."""
    experts = sum(lin.count * lin.in_features * lin.out_features for lin in group.linears if lin.count > 1)
    dense = sum(lin.in_features * lin.out_features for lin in group.linears if lin.count == 1)
    if not group.weights_quantised or group.kind != "block" or not experts or not dense:
        return group
    packed = group.quantised_bytes / dense
    total = group.weight_bytes_per_param * group.num_params - experts * (group.unquantised_bytes_per_param - packed)
    return replace(
        group,
        weight_bytes_per_param=total / group.num_params,
        quantised_bytes=group.quantised_bytes + packed * experts,
        dequantised_bytes=group.dequantised_bytes + 2.0 * experts,
    )


def _narrow_adapters(group: ModuleGroup, width: float) -> ModuleGroup:
    saved = tuple(
        replace(t, bytes_per_element=None) if t.name.startswith("adapter.") and t.bytes_per_element == _FP32 else t
        for t in group.saved
    )
    state = group.state_bytes * (group.adapter_bytes_per_param - width) / group.adapter_bytes_per_param
    narrower = round(state * group.adapter_params / group.trainable) if group.trainable else 0
    return replace(group, saved=saved, adapter_bytes_per_param=width, state_bytes=group.state_bytes - narrower)


def _rank(ledger: Ledger) -> int:
    """Of the adapters: the lesser edge of any of their tensors."""
    shapes = [shape for group in ledger.groups for shape in group.adapter_shapes if len(shape) > 1]
    return min((min(shape) for shape in shapes), default=0)


def _with_expert_adapters(group: ModuleGroup, sets: int, rank: int) -> ModuleGroup:
    """`sets` of adapters on every linear that is adapted, and on every expert's."""
    experts = sum(lin.count * rank * (lin.in_features + lin.out_features) for lin in group.linears if lin.count > 1)
    wanted = sets * (group.adapter_params + experts)
    if not group.adapter_params or not wanted:
        return group
    state = round(group.state_bytes * wanted / group.adapter_params) if group.base_trainable == 0 else group.state_bytes
    return replace(group, adapter_params=wanted, state_bytes=state, adapter_shapes=())


def _with_fused_qkv(group: ModuleGroup) -> ModuleGroup:
    shape = group.attention
    if shape is None:
        return group
    rotated = float((shape.num_heads + shape.num_kv_heads) * shape.head_dim)
    return replace(group, saved=(*group.saved, SavedTensor(name="fused_qkv", role="attention", elements=rotated)))


def _with_matrix(group: ModuleGroup) -> ModuleGroup:
    """A tied head, which owns no parameters, with its own (frozen as the embedding is, or learning)."""
    matrix = sum(linear.num_params for linear in group.linears)
    return replace(group, num_params=matrix) if group.kind == "head" and group.num_params == 0 else group


def _with_outputs(group: ModuleGroup) -> ModuleGroup:
    if group.kind != "block":
        return group
    width = sum(linear.out_features for linear in group.linears if linear.count == 1)
    return replace(group, saved=(*group.saved, SavedTensor(name="scaled.outputs", role="other", elements=float(width))))


def _with_inputs(group: ModuleGroup, copies: int) -> ModuleGroup:
    """bitsandbytes' product keeps its input, needed or not: `copies` of every distinct input of a quantised block."""
    if not group.weights_quantised or group.kind != "block":
        return group
    shared: dict[int, int] = {}
    for linear in group.linears:
        shared[linear.in_features] = shared.get(linear.in_features, 0) + 1
    width = min(shared)
    elements = sum(size * (1 if size != width else _streams(count)) for size, count in shared.items())
    extra = SavedTensor(name="kbit.inputs", role="other", elements=float(copies * elements))
    return replace(group, saved=(*group.saved, extra))


def _streams(count: int) -> int:
    """Distinct tensors of the stream's width that `count` linears read: one for queries to values, one each for
    the output projection and the feed-forward half."""
    return min(count, 3)


def _without_keys(group: ModuleGroup) -> ModuleGroup:
    return replace(group, saved=tuple(tensor for tensor in group.saved if not tensor.per_key))


def _fused_norms(group: ModuleGroup) -> ModuleGroup:
    saved = tuple(
        replace(t, bytes_per_element=None) if t.role == "norm_input" and t.elements > 8.0 else t for t in group.saved
    )
    return replace(group, saved=saved)


def _fused_activations(group: ModuleGroup) -> ModuleGroup:
    """The activation's output is made again in backward from its input."""
    return replace(group, saved=tuple(t for t in group.saved if not t.name.endswith(".activated")))
