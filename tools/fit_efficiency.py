"""Fit the speed constants to measured facts, refit with each source left out, and print the errors of what was unseen.

Usage: python tools/fit_efficiency.py [--rows FILE.csv ...] [--write] [--rounds N]

Facts are the rows that ship (catalogue/data/measurements.csv) and any table of the public schema. Free are: shares by
family of hardware and number format (efficiency.csv), a few constants of operations (efficiency_constants.csv), one
factor a training program (stacks.csv), all in the logarithm and each held near its physical value by a prior. Sources
weigh alike. The solver is Gauss-Newton with bounded influence of outliers (tools/fitting.py); folds are one more step
of it from the common optimum, and what is left out is then predicted by the whole model, never by its derivative.

`--write` replaces the fitted cells, and data/leave_out.csv with the constants of each source left out.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
from fit_facts import OWN, Fact, all_facts
from fit_write import write
from fitting import Fit, Parameter, Problem, fit_least_squares, refit_without

from stoker.catalogue.efficiency import load_efficiency
from stoker.core.efficiency import Efficiency
from stoker.estimators.step_time import estimate_step

PRIORS = Path(__file__).with_name("fit_priors.csv")
SIGMA = 0.12  # of a row's logarithm: what the model is not asked to explain
STACK_SIGMA = 0.25  # of programs around the common factor
CONSTANTS = {  # name: sigma of the logarithm
    "traffic_forward": 0.3,
    "traffic_backward": 0.3,
    "traffic_loose": 0.4,
    "dispatch": 0.3,
    "dispatch_fused": 0.3,
    "old_attention": 0.2,
    "map_frac": 0.3,
    "grouped_frac": 0.4,
    "score_frac": 0.3,
    "half_span": 0.5,
    "dequantise_frac": 0.5,
    "power_exponent": 0.05,
    "compiled_traffic": 0.3,
    "fill_depth": 0.5,
    "host_backward": 0.3,
}
SHARES = {"matmul_frac": 0.12, "attention_frac": 0.2}
CEILING = {"matmul_frac": 0.95, "attention_frac": 0.95}
COMMON = {"wave_outputs": 0.5, "host_s_per_kernel": 0.3}  # one factor for all families


def with_priors(efficiency: Efficiency) -> Efficiency:
    """`efficiency` with the values of fit_priors.csv, where every fit starts: what ships is the last fit's."""
    with PRIORS.open(encoding="utf-8", newline="") as file:
        priors = {row["name"]: float(row["prior"]) for row in csv.DictReader(file)}
    fields = (*SHARES, *COMMON)
    speeds = tuple(
        replace(row, **{f: priors[key] for f in fields if (key := f"{row.family}/{row.dtype}/{f}") in priors})
        for row in efficiency.speeds
    )
    constants = {name: priors.get(name, value) for name, value in efficiency.constants.items()}
    return replace(efficiency, speeds=speeds, constants=constants)


def parameters_of(facts: Sequence[Fact], efficiency: Efficiency) -> list[Parameter]:
    """What is free: shares of the families that the facts show, constants, and a factor a program."""
    found = []
    families = {fact.family for fact in facts}
    families |= {(fact.family[0], fact.scenario.products) for fact in facts if fact.scenario.products}
    for row in efficiency.speeds:
        if (row.family, row.dtype) not in families:
            continue
        for name, sigma in SHARES.items():
            if name == "attention_frac" and row.dtype in ("fp8", "fp4"):
                continue  # attention stays in 16 bits
            found.append(Parameter(f"{row.family}/{row.dtype}/{name}", getattr(row, name), sigma, CEILING[name]))
    found += [Parameter(name, efficiency.constants[name], sigma, None) for name, sigma in CONSTANTS.items()]
    found += [Parameter(f"*/{name}", 1.0, sigma, None) for name, sigma in COMMON.items()]
    found.append(Parameter("own/host", 1.0, 0.4, None))  # that machine's processor, and nobody else's
    found.append(Parameter("stack/*", 1.0, 0.07, None))
    stacks = sorted({fact.stack for fact in facts if fact.source != OWN})
    found += [Parameter(f"stack/{name}", 1.0, STACK_SIGMA, None) for name in stacks]
    return found


def with_values(efficiency: Efficiency, values: dict[str, float]) -> Efficiency:
    """`efficiency` with its fitted cells replaced."""
    speeds = []
    for row in efficiency.speeds:
        change = {name: values[key] for name in SHARES if (key := f"{row.family}/{row.dtype}/{name}") in values}
        if row.family != "cpu":
            change |= {name: getattr(row, name) * values.get(f"*/{name}", 1.0) for name in COMMON}
        speeds.append(replace(row, **change))
    constants = {**efficiency.constants, **{name: values[name] for name in CONSTANTS if name in values}}
    return replace(efficiency, speeds=tuple(speeds), constants=constants)


def log_ratios(
    facts: Sequence[Fact], efficiency: Efficiency, values: dict[str, float], known: bool = True
) -> np.ndarray:
    """log(predicted / measured) of each fact; `known`: with its program's own factor."""
    fitted = with_values(efficiency, values)
    own = with_values(efficiency, {**values, "*/host_s_per_kernel": values["*/host_s_per_kernel"] * values["own/host"]})
    out = np.empty(len(facts))
    for index, fact in enumerate(facts):
        factor = values["stack/*"] * (values.get(f"stack/{fact.stack}", 1.0) if known else 1.0)
        factor = 1.0 if fact.source == OWN else factor  # ours is what the formulas describe
        scenario = fact.scenario if known or fact.blind is None else fact.blind
        step = estimate_step(replace(scenario, efficiency=own if fact.source == OWN else fitted)).step_s
        out[index] = log(step * factor / fact.measured_s)
    return out


def weights_of(facts: Sequence[Fact]) -> np.ndarray:
    """Each source weighs as twenty rows at most, so that no large table outvotes the others."""
    counts: dict[str, int] = defaultdict(int)
    for fact in facts:
        counts[fact.source] += 1
    return np.array([min(counts[fact.source], 20) / counts[fact.source] for fact in facts])


def main() -> None:
    """Fit, refit with each source, GPU and model left out, print, and write where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=Path, action="append", default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--worst", type=int, default=0)
    arguments = parser.parse_args()
    efficiency = with_priors(replace(load_efficiency(), corrections=()))
    facts = all_facts(arguments.rows, efficiency)
    parameters = parameters_of(facts, efficiency)
    problem = Problem(
        parameters=parameters,
        weights=weights_of(facts),
        sigma=SIGMA,
        residuals=lambda values: log_ratios(facts, efficiency, values),
    )
    fit = fit_least_squares(problem, rounds=arguments.rounds)
    for parameter, value in zip(parameters, fit.values, strict=True):
        print(f"{parameter.name:34} {parameter.prior:.4g} -> {value:.4g}")
    print(f"\n{len(facts)} facts of {len({fact.source for fact in facts})} sources\n")
    sections = {
        "in the fit": fit.residuals,
        "GPU left out": folds(problem, fit, facts, efficiency, lambda fact: f"{fact.stack} {fact.gpu}", "stack"),
        "model left out": folds(problem, fit, facts, efficiency, lambda fact: f"{fact.stack} {fact.model}", "stack"),
        "source left out": folds(problem, fit, facts, efficiency, lambda fact: fact.source, ""),
    }
    for name, errors in sections.items():
        print_table(name, facts, errors)
    print_pairs(facts, sections["source left out"], "source left out")
    print_pairs(facts, sections["in the fit"], "in the fit")
    if arguments.write:
        write(problem, fit, facts, sections, efficiency)
    order = np.argsort(-np.abs(np.nan_to_num(sections["in the fit"])))
    for index in order[: arguments.worst]:
        print(f"{exp(sections['in the fit'][index]):6.2f} {facts[index].source[:10]} {facts[index].label}")
    blind = sections["source left out"]
    for index in np.argsort(-np.abs(np.nan_to_num(blind)))[: arguments.worst]:
        label = facts[index].blind.config.label if facts[index].blind else ""
        print(f"blind {exp(blind[index]):6.2f} {facts[index].source[:10]} {facts[index].label} -> {label}")


def folds(
    problem: Problem,
    fit: Fit,
    facts: Sequence[Fact],
    efficiency: Efficiency,
    key: Callable[[Fact], str],
    within: str,
) -> np.ndarray:
    """log ratios of every fact by constants that did not see its group; NaN where the group is all of its program."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, fact in enumerate(facts):
        groups[key(fact)].append(index)
    out = np.full(len(facts), np.nan)
    for members in groups.values():
        stacks = {facts[index].stack for index in members}
        rest = [index for index in range(len(facts)) if index not in set(members)]
        if within and not any(facts[index].stack in stacks for index in rest):
            continue
        values = refit_without(problem, fit, members)
        out[members] = log_ratios([facts[index] for index in members], efficiency, values, known=bool(within))
    return out


def print_table(name: str, facts: Sequence[Fact], errors: np.ndarray) -> None:
    """Median, 90th percentile and median ratio by source, and over sources alike."""
    print(f"{name}: {'source':30} {'n':>4} {'median':>7} {'p90':>7} {'ratio':>6}")
    medians, tails = [], []
    for source in sorted({fact.source for fact in facts}):
        chosen = [e for e, fact in zip(errors, facts, strict=True) if fact.source == source and not np.isnan(e)]
        if not chosen:
            continue
        shares = sorted(abs(exp(e) - 1.0) for e in chosen)
        medians.append(shares[len(shares) // 2])
        tails.append(shares[int(0.9 * (len(shares) - 1))])
        print(f"{'':{len(name)}}  {source[:30]:30} {len(chosen):4} {medians[-1]:7.1%} {tails[-1]:7.1%} "
              f"{exp(float(np.median(chosen))):6.2f}")  # fmt: skip
    every = sorted(abs(exp(e) - 1.0) for e in errors if not np.isnan(e))
    if every:
        print(f"{'':{len(name)}}  rows: n {len(every)} median {every[len(every) // 2]:.1%} p90 "
              f"{every[int(0.9 * (len(every) - 1))]:.1%}; mean over sources: median {np.mean(medians):.1%}, "
              f"p90 {np.mean(tails):.1%}\n")  # fmt: skip


def print_pairs(facts: Sequence[Fact], errors: np.ndarray, name: str) -> None:
    """Of two GPUs on the same work, more than a tenth apart: how often the faster is named."""
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, fact in enumerate(facts):
        if not np.isnan(errors[index]):
            same[fact.key].append(index)
    pairs = right = 0
    for members in same.values():
        for place, a in enumerate(members):
            for b in members[place + 1 :]:
                if facts[a].gpu == facts[b].gpu:
                    continue
                measured = log(per_sample(facts[a]) / per_sample(facts[b]))
                if abs(measured) < log(1.1):
                    continue
                pairs += 1
                right += (measured + errors[a] - errors[b] > 0) == (measured > 0)
    print(f"rank of two GPUs on the same work, {name}: {right} of {pairs} right")


def per_sample(fact: Fact) -> float:
    """Measured seconds a sample and GPU."""
    config = fact.scenario.config
    return fact.measured_s * config.parallel.world_size / config.global_batch_size


if __name__ == "__main__":
    main()
