"""Development loop: `python -m stoker.validation [--source S] [--metric M] [--worst N] [--file CSV]`.

Per source and quantity: n, median and 90th percentile of the error, the median ratio predicted / measured, the share
within the interval and above its high end; then the worst rows with their terms.
"""

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from stoker.catalogue.efficiency import load_efficiency
from stoker.validation.run import Compared, compare, compare_left_out, error_of, ratio_of
from stoker.validation.table import read_table

_FILE = Path(__file__).resolve().parents[4] / "shared" / "data" / "validation" / "measured.csv"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m stoker.validation")
    parser.add_argument("--file", type=Path, default=_FILE)
    parser.add_argument("--source", default="", help="part of a source's name")
    parser.add_argument("--metric", default="", help="part of a metric's name: mem, time, per_s, oom")
    parser.add_argument("--model", default="", help="part of a model's name")
    parser.add_argument("--words", default="", help="part of method, precision, strategy or note")
    parser.add_argument("--worst", type=int, default=12, help="rows to show")
    parser.add_argument("--all", action="store_true", help="show every row in order")
    parser.add_argument("--left-out", action="store_true", help="no source's stack is known")
    arguments = parser.parse_args()
    rows = [row for row in read_table(arguments.file) if row.measurement is None or _wanted(arguments, row.measurement)]
    efficiency = replace(load_efficiency(), corrections=())
    found = compare_left_out(rows, efficiency, described=False) if arguments.left_out else compare(rows, efficiency)
    _print_groups(found)
    _print_reasons(found)
    scored = [one for one in found if error_of(one) is not None]
    shown = scored if arguments.all else sorted(scored, key=lambda one: -(error_of(one) or 0.0))[: arguments.worst]
    for one in shown:
        _print_row(one)


def _wanted(arguments: argparse.Namespace, measurement: object) -> bool:
    def has(part: str, *names: str) -> bool:
        text = " ".join(str(getattr(measurement, name)) for name in names).casefold()
        return part.casefold() in text

    return (
        has(arguments.source, "source")
        and has(arguments.metric, "metric")
        and has(arguments.model, "model")
        and has(arguments.words, "method", "precision", "strategy", "note", "recompute", "gpu", "unit")
    )


def _print_groups(found: list[Compared]) -> None:
    groups: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    for one in found:
        if one.measurement and one.prediction:
            kind = {"peak_mem_gb": "memory", "oom": "oom", "ran": "ran"}.get(one.measurement.metric, "time")
            groups[one.measurement.source, kind].append(one)
            groups["(all rows)", kind].append(one)
    print(
        f"{'source':34} {'kind':7} {'n':>4} {'median':>7} {'p90':>7} {'ratio':>6} {'inside':>7} "
        f"{'>high':>6} {'fits':>6}"
    )
    for (source, kind), members in sorted(groups.items(), key=lambda item: (item[0][1], item[0][0])):
        fits = [one.prediction.fit_probability or 0.0 for one in members if one.prediction]
        fit = sum(value >= 0.5 for value in fits) / len(fits)
        errors = sorted(error for one in members if (error := error_of(one)) is not None)
        if not errors:
            print(f"{source[:34]:34} {kind:7} {len(members):4} {'':31} {'':6} {fit:6.0%}")
            continue
        ratios = sorted(
            ratio_of(one.measurement, one.prediction) for one in members if one.measurement and one.prediction
        )
        pairs = [(one.measurement.value, one.prediction) for one in members if one.measurement and one.prediction]
        inside = sum(p.low <= value <= p.high for value, p in pairs) / len(pairs)
        above = sum(value > p.high for value, p in pairs) / len(pairs)
        print(
            f"{source[:34]:34} {kind:7} {len(errors):4} {errors[len(errors) // 2]:7.1%} "
            f"{errors[int(0.9 * (len(errors) - 1))]:7.1%} {ratios[len(ratios) // 2]:6.2f} {inside:7.0%} "
            f"{above:6.0%} {fit:6.0%}"
        )


def _print_reasons(found: list[Compared]) -> None:
    reasons: dict[tuple[str, str], int] = defaultdict(int)
    for one in found:
        if one.reason:
            source = one.measurement.source if one.measurement else "(bad row)"
            reasons[source, one.reason] += 1
    print(f"\nnot scored: {sum(reasons.values())} of {len(found)}")
    for (source, reason), count in sorted(reasons.items(), key=lambda item: -item[1])[:60]:
        print(f"  {count:4}  {source[:28]:28} {reason[:110]}")


def _print_row(one: Compared) -> None:
    measurement, prediction, trial = one.measurement, one.prediction, one.trial
    assert measurement is not None and prediction is not None and trial is not None
    config = trial.scenario.config
    print(
        f"\n{ratio_of(measurement, prediction):5.2f} line {measurement.line} {measurement.source[:14]} "
        f"{measurement.model} {measurement.method} {measurement.precision} {measurement.gpu} x{measurement.num_gpus} "
        f"seq {measurement.seq_len} {measurement.metric} {measurement.value:g} -> {prediction.expected:.4g} "
        f"[{prediction.low:.4g}, {prediction.high:.4g}] {measurement.unit[:24]}\n      {config.label} "
        f"loss={config.loss} attn={config.attention} {config.capture} {measurement.note[:80]}"
    )
    scale = 1e-9 if measurement.metric == "peak_mem_gb" else 1e3
    print("      " + " ".join(f"{k}={v * scale:.2f}" for k, v in prediction.terms.items() if abs(v * scale) > 0.005))


if __name__ == "__main__":
    main()
