"""How well a device is used: model FLOP/s over its dense peak, and whether ranks make progress at all.

The peak is the dense one of the number format in use, from the device's own table row, so neither the sparse figure,
nor TF32's, nor another product's can slip in. "100 % busy" of a driver only says that some kernel was resident: a
rank that waits in a collective shows it too, so health goes by step progress and power.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from stoker.core.hardware import Device
from stoker.core.i18n import _
from stoker.core.utilisation import share_of_peak
from stoker.observe.reading import Reading

_IDLE_POWER_FRAC = 0.35  # waiting GPUs draw 15 to 30 % of their limit, training ones 60 % and more
_STALL_STEPS = 20.0
_STALL_S = 30.0

Phase = Literal["compute", "collective", "data", "save", "evaluate"]
Verdict = Literal["working", "waiting_for_rank", "stalled", "starved"]


def model_flops_utilisation(flops_per_s: float, device: Device, dtype: str) -> Reading:
    """Achieved model FLOP/s of one device as a share of its dense peak in `dtype`.

    No share where the peak is unknown, or where it would exceed 1: then the FLOP count, the peak or the clock is
    wrong, and the reason says so (case 37).
    """
    if dtype not in device.peak_flops_per_s:  # what a measurement claims to be is not read as another format
        return Reading.missing(
            _("no dense peak of {device} in {dtype} is known").format(device=device.name, dtype=dtype)
        )
    share, problem = share_of_peak(flops_per_s, device, dtype)
    return Reading.missing(problem) if share is None else Reading(share)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """Last sign of life of a rank: the step it is in, in which phase, and for how long (seconds).

    `busy_frac`, `power_frac` (of the limit): of its GPU, None where there is no sensor.
    """

    rank: int
    step: int
    phase: Phase
    since_s: float
    busy_frac: float | None = None
    power_frac: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`late_ranks`: those that the others wait for. `why`: one sentence for people."""

    verdict: Verdict
    late_ranks: tuple[int, ...]
    why: str


def judge_health(ranks: Sequence[RankState], typical_step_s: float) -> Health:
    """Whether the ranks work, or whom they wait for.

    Nobody is late before 20 typical steps or 30 s, whichever is longer, have passed without progress. Among ranks
    that hang, the late ones are those that have not entered the collective in which the others wait.
    """
    patience_s = max(_STALL_S, _STALL_STEPS * typical_step_s)
    quiet = [state for state in ranks if state.since_s > patience_s]
    if not quiet:
        return Health(verdict="working", late_ranks=(), why=_("every rank made progress"))
    longest = max(state.since_s for state in quiet)
    waiting = [state for state in quiet if state.phase == "collective"]
    behind = min(state.step for state in ranks)
    late = tuple(state.rank for state in ranks if state.phase != "collective" and state.step == behind)
    if waiting and late:
        return Health(
            verdict="waiting_for_rank",
            late_ranks=late,
            why=_("ranks {waiting} wait in a collective for rank {late} since {seconds} s{busy}").format(
                waiting=_list(state.rank for state in waiting),
                late=_list(late),
                seconds=round(longest),
                busy=_busy_note(waiting),
            ),
        )
    if all(state.phase == "data" for state in quiet):
        return Health(
            verdict="starved",
            late_ranks=tuple(state.rank for state in quiet),
            why=_("ranks {ranks} wait for data since {seconds} s").format(
                ranks=_list(state.rank for state in quiet), seconds=round(longest)
            ),
        )
    return Health(
        verdict="stalled",
        late_ranks=tuple(state.rank for state in quiet),
        why=_("no step for {seconds} s{busy}").format(seconds=round(longest), busy=_busy_note(quiet)),
    )


def _busy_note(states: Sequence[RankState]) -> str:
    """What a full utilisation figure beside idle power means."""
    fooled = [
        state
        for state in states
        if (state.busy_frac or 0.0) > 0.9 and state.power_frac is not None and state.power_frac < _IDLE_POWER_FRAC
    ]
    if not fooled:
        return ""
    return _("; their 100 % utilisation only says that a kernel was resident: power is at idle")


def _list(ranks: Iterable[int]) -> str:
    return ", ".join(str(rank) for rank in ranks)
