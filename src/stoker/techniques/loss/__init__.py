"""Losses of a language model: bytes of the logits and of every copy alive at the peak, and the loss itself."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.loss.chunked import ChunkedLoss
from stoker.techniques.loss.eager import EagerLoss, NarrowLoss, ShiftedLoss, UpcastLoss
from stoker.techniques.loss.fused_linear import CutLoss, LigerLoss, TrlChunkedLoss
from stoker.techniques.protocols import LossTechnique

LOSSES: tuple[LossTechnique, ...] = (
    EagerLoss(),
    ChunkedLoss(),
    LigerLoss(),
    CutLoss(),
    UpcastLoss(),
    ShiftedLoss(),
    NarrowLoss(),
    TrlChunkedLoss(),
)


def loss(name: str) -> LossTechnique:
    """The loss called `name`. Raises PlanningError ST380."""
    return find_technique("loss", LOSSES, name)
