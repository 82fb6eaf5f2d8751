"""Attention kernels: what of the scores stays for backward, and the name transformers knows them by."""

from stoker.techniques.attention.eager import Eager
from stoker.techniques.attention.flash import Flash
from stoker.techniques.attention.sdpa import Sdpa
from stoker.techniques.lookup import find_technique
from stoker.techniques.protocols import AttentionTechnique

ATTENTIONS: tuple[AttentionTechnique, ...] = (Sdpa(), Eager(), Flash())


def attention(name: str) -> AttentionTechnique:
    """The attention kernel called `name`. Raises PlanningError ST380."""
    return find_technique("attention", ATTENTIONS, name)
