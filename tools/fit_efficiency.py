"""Show predicted over measured step time of every anchor, and by how much each family's matmul_frac should move.

Usage: python tools/fit_efficiency.py. Constants are changed by hand in catalogue/data/efficiency.csv, by family and
number format and never by row; this prints what a change would do.
"""

from collections import defaultdict
from dataclasses import replace
from math import log

from stoker.catalogue.anchors import Anchor, all_anchors
from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import find_device
from stoker.core.efficiency import Efficiency
from stoker.core.ledger import ModelArch
from stoker.estimators.anchored import anchor_arch, predict_anchor, typical_ratio
from stoker.techniques.precision import precision


def main() -> None:
    """Print the table and the suggestions."""
    efficiency = replace(load_efficiency(), corrections=())
    groups: dict[tuple[str, str], list[tuple[Anchor, ModelArch]]] = defaultdict(list)
    errors = []
    for anchor in all_anchors():
        arch = anchor_arch(anchor)
        dtype = precision(anchor.run_config.precision).compute_dtype
        speed = efficiency.speed(find_device(anchor.gpu), dtype)
        step = predict_anchor(anchor, efficiency, arch)
        ratio = step.step_s / anchor.step_s
        errors.append(abs(ratio - 1.0))
        groups[speed.family, speed.dtype].append((anchor, arch))
        terms = " ".join(f"{name}={1e3 * value:.1f}" for name, value in step.terms.items() if value > 1e-4)
        print(f"{ratio:5.2f}  {anchor.label}: {1e3 * anchor.step_s:.1f} ms; {terms}")
    errors.sort()
    print(f"median error {errors[len(errors) // 2]:.1%}, 90 % {errors[int(0.9 * len(errors))]:.1%}, n {len(errors)}")
    for (family, dtype), members in groups.items():
        print(f"{family} {dtype}: {_suggest(efficiency, family, dtype, members)}")


def _suggest(efficiency: Efficiency, family: str, dtype: str, members: list[tuple[Anchor, ModelArch]]) -> str:
    """The matmul_frac whose median ratio is nearest one."""
    best: tuple[float, float] | None = None
    for percent in range(20, 96, 2):
        changed = tuple(
            replace(row, matmul_frac=percent / 100.0) if (row.family, row.dtype) == (family, dtype) else row
            for row in efficiency.speeds
        )
        trial = replace(efficiency, speeds=changed)
        ratio = typical_ratio([predict_anchor(a, trial, arch).step_s / a.step_s for a, arch in members])
        if best is None or abs(log(ratio)) < abs(log(best[1])):
            best = percent / 100.0, ratio
    assert best is not None
    return f"matmul_frac {best[0]:.2f} gives a median ratio of {best[1]:.2f} over {len(members)} anchors"


if __name__ == "__main__":
    main()
