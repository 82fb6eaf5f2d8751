"""Strategy columns into parallel degrees: `fsdp32+tp8`, `megatron:TP1,PP4,CP1,VP4,EP64`, `device_map (naive MP)`.

What the words leave open of the GPUs is data parallel: sharded where the words name a sharding scheme.
"""

import re
from dataclasses import dataclass
from typing import Final

from stoker.core.run_config import ContextExchange, Parallel, ZeroStage
from stoker.validation.wording import Gap

_DEGREE: Final = re.compile(r"(tp|pp|cp|vp|ep|sp|dp|fsdp|hsdp)[=\s]?(\d+)")
_OFFLOAD: Final = re.compile(r"offload|stream|nvme|zero-?infinity")
_ZERO: Final = re.compile(r"(?:zero|deepspeed|stage|(?:\b|_)z|\bds|\bstg)[-_ ]*(?:stage)?[-_ ]*([123])(?!\d)")
_KNOWN: Final = re.compile(
    r"ddp|\bdp|data|fsdp|zero|deepspeed|\bds\b|(?:\b|_)z[123]|shard|tp|pp|cp|ep|sp\d|megatron|tensor|pipeline|ulysses|context|expert|"
    r"stage|hybrid|horovod|torchrun|accelerate|distributed|multi|offload|stream|nvme"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Degrees, and whether state leaves the GPU (`nvme`: for flash). `is_guess`: the words leave the scheme open."""

    parallel: Parallel
    offloaded: bool = False
    nvme: bool = False
    is_guess: bool = False


def read_strategy(words: str, num_gpus: int) -> Strategy:
    """The strategy over `num_gpus` GPUs. Raises Gap where the degrees do not multiply to them, or nothing is said."""
    text = words.casefold()
    offloaded, nvme = bool(_OFFLOAD.search(text)), "nvme" in text
    if num_gpus == 1 or "single" in text or "listed as" in text:
        return Strategy(parallel=Parallel(), offloaded=offloaded, nvme=nvme)
    if re.search(r"device_map|naive", text):
        return Strategy(parallel=Parallel(kind="layer_split", pp=num_gpus))
    if re.search(r"dataparallel|^dp$", text):
        return Strategy(parallel=Parallel(kind="data_parallel", dp_replicate=num_gpus))
    if text and not _KNOWN.search(text):
        raise Gap(f"strategy {words}: not understood")
    found: dict[str, int] = {}
    for name, degree in _DEGREE.findall(text):
        found.setdefault(name, int(degree))  # `PP4 (8)` in a table of corrections: the first is what ran
    tp, pp = found.get("tp", 1), found.get("pp", 1)
    cp = found.get("cp", found.get("sp", 1))
    rest, left = divmod(num_gpus, tp * pp * cp)
    if left or rest < 1:
        raise Gap(f"strategy {words}: its degrees do not divide {num_gpus} GPUs")
    shard, stage = _sharding(text, found, rest)
    context: ContextExchange = "ulysses" if "ulysses" in text else "ring"
    parallel = Parallel(
        dp_replicate=rest // shard,
        dp_shard=shard,
        cp=cp,
        tp=tp,
        pp=pp,
        ep=found.get("ep", 1),
        zero_stage=stage,
        virtual_stages=found.get("vp", 2 if "interleave" in text else 1) if pp > 1 else 1,
        context=context,
        async_tp="asynctp" in text or "megatron" in text,
        gathers_narrow=True,  # the mixed-precision policy that public FSDP stacks set
    )
    unsaid = not text or ("deepspeed" in text and not _ZERO.search(text))
    return Strategy(parallel=parallel, offloaded=offloaded, nvme=nvme, is_guess=unsaid)


def _sharding(text: str, found: dict[str, int], ranks: int) -> tuple[int, ZeroStage]:
    """(ranks that share one copy, what they shard) of `ranks` data-parallel ranks."""
    zero = _ZERO.search(text)
    if zero and "fsdp" not in text:
        stage: ZeroStage = {"1": 1, "2": 2, "3": 3}[zero[1]]  # type: ignore[assignment]
        return ranks, stage
    if "grad_op" in text:
        return ranks, 2
    if "no_shard" in text:
        return 1, 3
    if "deepspeed" in text:
        return ranks, 2  # its usual stage where only the name stands
    if "fsdp" in text or "full_shard" in text or "fully sharded" in text:
        shard = found.get("hsdp", ranks)  # `fsdp2` is a version where it does not make up the ranks
        return (shard, 3) if 0 < shard <= ranks and ranks % shard == 0 else (ranks, 3)
    if "megatron" in text or "distributed optimizer" in text:
        return ranks, 1
    return 1, 3
