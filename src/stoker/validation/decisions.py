"""Decisions rather than figures: does it fit, and which of two GPUs is the faster on the same work."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from stoker.validation.predict import samples_per_step
from stoker.validation.run import Compared
from stoker.validation.score import Counted, library_version, run_key

_APART_FRAC: Final = 1.10  # pairs that differ by less are ties


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """`right` of `n` decisions; `wrong`: the rows (or pairs of rows) that came out wrong."""

    n: int
    right: int
    wrong: tuple[str, ...] = ()

    @property
    def share(self) -> float | None:
        return self.right / self.n if self.n else None


def fit_decisions(rows: Iterable[Compared]) -> tuple[Decided, Decided]:
    """(rows that ran out of memory and came out below one half, runs that ran and came out at one half or more)."""
    failed: dict[tuple[object, ...], Compared] = {}
    ran: dict[tuple[object, ...], Compared] = {}
    for row in rows:
        if row.measurement is None or row.trial is None or row.prediction is None:
            continue
        if row.prediction.fit_probability is None:
            continue
        target = failed if row.measurement.metric == "oom" else ran
        target.setdefault(run_key(row.measurement, row.trial), row)
    return _decided(failed.values(), fits=False), _decided(ran.values(), fits=True)


def _decided(rows: Iterable[Compared], *, fits: bool) -> Decided:
    found = list(rows)
    wrong = [row for row in found if (_probability(row) >= 0.5) != fits]
    return Decided(n=len(found), right=len(found) - len(wrong), wrong=tuple(label(row) for row in wrong))


def _probability(row: Compared) -> float:
    return row.prediction.fit_probability or 0.0 if row.prediction else 0.0


def label(row: Compared) -> str:
    """A row in a few words: line, source, model, method, precision, GPU."""
    found = row.measurement
    if found is None:
        return f"line {row.row.line}"
    words = (found.source, found.model, found.method, found.precision, f"{found.num_gpus or 1} x {found.gpu}")
    return f"line {found.line}: " + ", ".join(word for word in words if word)


def rank_pairs(counted: Iterable[Counted]) -> Decided:
    """Pairs of GPUs measured by one source on the same work, more than 10 % apart; vendors' claims left out.

    The same work: source and library version, model, method, precision, length, number of GPUs, samples of a step.
    """
    same: dict[tuple[object, ...], list[Counted]] = defaultdict(list)
    for one in counted:
        measurement, trial = one.compared.measurement, one.compared.trial
        if one.quantity != "step_time" or measurement is None or trial is None:
            continue
        if measurement.quality not in ("measured", "derived"):
            continue
        scenario = trial.scenario
        work = (
            measurement.source,
            library_version(measurement),
            trial.model,
            measurement.method,
            measurement.precision,
            scenario.config.parallel.world_size,
            scenario.config.recompute,
            scenario.lengths.mean,
            samples_per_step(scenario),
        )
        same[work].append(one)
    pairs = right = 0
    wrong: list[str] = []
    for members in same.values():
        for a, b in combinations(members, 2):
            verdict = _verdict(a, b)
            if verdict is None:
                continue
            pairs += 1
            right += verdict
            if not verdict:
                wrong.append(f"{label(a.compared)} / {label(b.compared)}")
    return Decided(n=pairs, right=right, wrong=tuple(wrong))


def _verdict(a: Counted, b: Counted) -> bool | None:
    """Whether the faster is named right; None for one GPU, or a tie."""
    if a.gpu == b.gpu:
        return None
    predicted = _seconds(a) / _seconds(b)
    measured = predicted * b.ratio / a.ratio
    if 1.0 / _APART_FRAC < measured < _APART_FRAC:
        return None
    return (predicted < 1.0) == (measured < 1.0)


def _seconds(one: Counted) -> float:
    """Predicted seconds of a step."""
    prediction = one.compared.prediction
    assert prediction is not None
    return prediction.step_s or 0.0
