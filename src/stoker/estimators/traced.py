"""A memory estimate from a traced peak: the trace's own bytes, and the analytic estimate's for what a trace cannot see.

Context, communication buffers and workspaces are taken over; the allocator's slack and the half-width of the interval
are taken over as shares of what comes and goes, and of the whole. Source: traced.
"""

from collections.abc import Mapping
from dataclasses import replace

from stoker.core.estimate import MemoryEstimate, Source
from stoker.estimators.scenario import Scenario

_COMING = ("activations", "logits", "temp_buffers")
_OUTSIDE = ("comm_buffers", "framework")


def traced_estimate(scenario: Scenario, analytic: MemoryEstimate, terms: Mapping[str, int]) -> MemoryEstimate:
    """`analytic` with its allocated part replaced by `terms`, bytes of a traced peak by term."""
    outside = scenario.efficiency.framework(scenario.cluster.device)
    merged = {name: 0 for name in analytic.terms} | dict(terms)
    merged["optimizer_states"] += merged.pop("masters", 0)
    merged["temp_buffers"] += round(outside.workspace_bytes)
    for name in _OUTSIDE:
        merged[name] = analytic.terms.get(name, 0)
    traced = sum(merged.get(name, 0) for name in _COMING)
    counted = sum(analytic.terms.get(name, 0) for name in _COMING)
    share = traced / counted if counted else 1.0
    merged["fragmentation"] = round(analytic.terms.get("fragmentation", 0) * share)
    expected = sum(merged.values())
    width = expected / analytic.expected_bytes
    return replace(
        analytic,
        low_bytes=round(analytic.low_bytes * width),
        expected_bytes=expected,
        high_bytes=round(analytic.high_bytes * width),
        peak_allocated_bytes=expected - merged["framework"] - merged["fragmentation"],
        terms={name: value for name, value in merged.items() if value or name in analytic.terms},
        phases={},
        tiers={"hbm": expected, "dram": 0, "nvme": 0},
        source=Source.TRACED,
        correction_factor=1.0,
        correction_parts={},
    )
