"""The terms of memory tiers with formula, inputs and source: what `plan --explain` shows of DRAM, flash and the link.

Formulas are those of docs/math.md, section 8; every number is a replay of the candidate's own schedule.
"""

from dataclasses import replace

from stoker.core.estimate import MemoryEstimate, Source
from stoker.core.explanation import ExplainedTerm, Input
from stoker.core.i18n import _
from stoker.estimators.scenario import Scenario
from stoker.estimators.step_time import estimate_step
from stoker.estimators.tiers import assumed_speeds, schedule_of
from stoker.planner.terms import constant, given
from stoker.techniques.placement.replay import replay_bytes, replay_seconds


def tier_terms(scenario: Scenario, memory: MemoryEstimate) -> tuple[ExplainedTerm, ...]:
    """What lies in host memory and on flash, by kind; empty where all state lies in the GPU."""
    if scenario.config.placement != "tiers":
        return ()
    schedule = schedule_of(scenario)
    found = replay_bytes(schedule)
    names = {
        "weights": _("weights"),
        "gradients": _("gradients on their way to the update"),
        "state": _("masters and moments"),
        "activations": _("inputs of blocks"),
        "buffers": _("staging for flash"),
    }
    rounded = replay_bytes(replace(schedule, exact_pinned=False)).dram_bytes
    allocator = given("pinned", _("the same in torch's pinned allocator, which takes powers of two"), rounded, "bytes")
    words = {
        "dram": _("what lies in host memory, in slabs of its exact size"),
        "nvme": _("what lies on flash"),
    }
    terms = []
    for tier, kinds in (("dram", found.dram), ("nvme", found.nvme)):
        inputs = tuple(given(kind, names[kind], size, "bytes") for kind, size in kinds.items() if size)
        if inputs:
            terms.append(
                ExplainedTerm(
                    name=tier,
                    value=float(memory.tiers[tier]),
                    formula=" + ".join(item.symbol for item in inputs),
                    words=words[tier],
                    inputs=(*inputs, allocator) if tier == "dram" and schedule.exact_pinned else inputs,
                    source=Source.ANALYTIC,
                )
            )
    return tuple(terms)


def transfer_inputs(scenario: Scenario) -> tuple[Input, ...]:
    """Of the transfers that are not hidden: the stream, the update by its lane (case 35), and flash."""
    schedule, constants = schedule_of(scenario), scenario.efficiency.constants
    speeds = assumed_speeds(scenario.cluster, constants)
    micro, rounds = estimate_step(scenario).micro_batch, scenario.config.gradient_accumulation_steps
    found = replay_seconds(
        schedule, speeds, forward_s=rounds * micro.forward.total_s, backward_s=rounds * micro.backward.total_s
    )
    device = scenario.cluster.device
    inputs = [
        given("stream", _("weights, gradients and inputs over the link"), found.stream_s, "s", Source.ASSUMED),
        given("link", _("to host memory"), device.pcie_bytes_per_s, "bytes_per_s", device.source),
        constant(scenario, "tier_pcie_frac", _("share of the link")),
        given("update", _("outside the GPU's own memory"), found.update_s, "s", Source.ASSUMED),
    ]
    on_cpu = sum(
        unit.trainable_params
        for unit, place in zip(schedule.units, schedule.placements, strict=True)
        if place.update == "cpu"
    )
    if on_cpu:
        inputs += [
            given("N_c", _("parameters that the CPU updates"), on_cpu),
            given("c", _("bytes of DRAM a parameter"), schedule.update_bytes_per_param, "bytes_per_param"),
            constant(scenario, "tier_dram_bytes_per_s", _("rate of the DRAM"), "bytes_per_s"),
        ]
    elif found.update_s:
        inputs.append(given("lane", _("how it runs"), _("state streams through the GPU"), "name"))
    if found.nvme_s:
        inputs += [
            given("flash", _("read and written, not yet hidden"), found.nvme_s, "s", Source.ASSUMED),
            constant(scenario, "tier_nvme_read_bytes_per_s", _("reading a machine's flash"), "bytes_per_s"),
            constant(scenario, "tier_nvme_write_bytes_per_s", _("writing it"), "bytes_per_s"),
        ]
    return tuple(inputs)
