"""Which linears get an adapter: `all-linear`, `attention`, or names matched as peft matches them (by suffix)."""

import re
from collections.abc import Sequence
from typing import Final

_ATTENTION: Final = re.compile(r"attn|attention")
_ATTENTION_LEAF: Final = re.compile(
    r"[qkvo]_proj|out_proj|[qkv]_lin|out_lin|qkv(_proj)?|W(qkv|o)|c_attn|query|key|value|query_key_value|(query|key|value)_proj"
    r"|q_[ab]_proj|kv_a_proj_with_mqa|kv_b_proj"
)
_ROUTERS: Final = frozenset({"router", "gate", "mlp.gate", "mlp.router", "shared_expert_gate"})

# peft 0.21 takes these names, in a model with stacked experts, for the experts that transformers 4 had: it then adapts
# every expert (their rank doubled, whole stacks rebuilt in each forward) and leaves the very linears named so without.
_TAKEN_FOR_EXPERTS: Final = frozenset({"gate_proj", "up_proj", "down_proj"})


def taken_for_expert(name: str) -> bool:
    """Whether peft would take the linear called `name` for experts, in a model whose experts are stacked."""
    return name.rsplit(".", 1)[-1] in _TAKEN_FOR_EXPERTS


def is_target(name: str, targets: str | Sequence[str]) -> bool:
    """Whether the linear called `name` (its path inside a block) gets an adapter."""
    leaf = name.rsplit(".", 1)[-1]
    if not isinstance(targets, str):
        return any(name == target or name.endswith("." + target) for target in targets)
    if leaf in _ROUTERS:
        return False
    if targets == "all-linear":
        return True
    return bool(_ATTENTION.search(name)) or _ATTENTION_LEAF.fullmatch(leaf) is not None


def may_be_target(short_name: str, targets: str | Sequence[str]) -> bool:
    """The same for a ledger's linear, whose name may lack the modules around it (`q_proj` of `self_attn.q_proj`)."""
    if is_target(short_name, targets):
        return True
    return not isinstance(targets, str) and any(target.endswith("." + short_name) for target in targets)
