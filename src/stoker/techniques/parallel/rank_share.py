"""What one rank holds of a group whose parameters are cut: parameters, state and work by their share."""

from dataclasses import replace

from stoker.core.ledger import ModuleGroup


def expert_params(group: ModuleGroup) -> int:
    """Parameters of one copy that belong to experts: matrices of which a token passes through some only."""
    return sum(linear.num_params for linear in group.linears if linear.active_frac < 1.0)


def with_params(group: ModuleGroup, num_params: int, *, adapters: float = 1.0) -> ModuleGroup:
    """`group` with `num_params` of its parameters left on this rank; what learns and its state shrink alike.

    `adapters`: share of the adapter parameters that stay. Linears, saved tensors and work are the caller's.
    """
    share = num_params / group.num_params if group.num_params else 1.0
    base = group.base_trainable
    kept = round(base * share) + round(group.adapter_params * adapters)
    return replace(
        group,
        num_params=num_params,
        trainable_params=None if group.trainable_params is None else round(group.trainable_params * share),
        adapter_params=round(group.adapter_params * adapters),
        state_bytes=round(group.state_bytes * kept / group.trainable) if group.trainable else group.state_bytes,
        cast_bytes=round(group.cast_bytes * share),
        quantised_bytes=group.quantised_bytes * share,
        dequantised_bytes=group.dequantised_bytes * share,
        dequantised_temp_bytes=group.dequantised_temp_bytes * share,
    )


def data_shards(group: ModuleGroup, ranks: int) -> float:
    """Over how many ranks a rank's own part of `group` is sharded when `ranks` ranks share the data.

    Experts are already spread over `expert_ranks` of those ranks, so only ranks / expert_ranks hold the same ones.
    """
    if group.expert_ranks == 1 or not group.num_params:
        return ranks
    same = max(ranks / group.expert_ranks, 1.0)
    return group.num_params / ((group.num_params - group.expert_params) / ranks + group.expert_params / same)
