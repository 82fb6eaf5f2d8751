"""Parallel strategies, one axis a file: what a rank holds, which collectives a step sends, which buffers that needs.

`parallel(degrees)` is the axis that the degrees use, or a `Mix` of several.
"""

import functools

from stoker.core.run_config import Parallel
from stoker.techniques.parallel.context import ContextParallel
from stoker.techniques.parallel.data_parallel import DataParallel
from stoker.techniques.parallel.ddp import DDP
from stoker.techniques.parallel.expert import ExpertParallel
from stoker.techniques.parallel.fsdp import FSDP
from stoker.techniques.parallel.layer_split import LayerSplit
from stoker.techniques.parallel.mix import Mix
from stoker.techniques.parallel.pipeline import Pipeline
from stoker.techniques.parallel.single import Single
from stoker.techniques.parallel.tensor import TensorParallel
from stoker.techniques.parallel.zero import Zero
from stoker.techniques.protocols import ParallelTechnique

# in the order of their passes: see mix.py
PARALLELS: tuple[ParallelTechnique, ...] = (
    Single(),
    DataParallel(),
    LayerSplit(),
    TensorParallel(),
    ExpertParallel(),
    ContextParallel(),
    DDP(),
    Zero(),
    FSDP(),
    Pipeline(),
)


@functools.lru_cache(maxsize=4096)
def parallel(degrees: Parallel) -> ParallelTechnique:
    """The strategy that these degrees mean: every set of degrees has one."""
    parts = tuple(technique for technique in PARALLELS if technique.matches(degrees))
    return parts[0] if len(parts) == 1 else Mix(parts)
