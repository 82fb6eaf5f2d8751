"""A tier schedule replayed gives the bytes and seconds that were measured or follow by arithmetic (cases 33 and 35)."""

from dataclasses import replace

import pytest

from planning import LLAMA_8B, lm_job, plan_of
from stoker.core.codec import decode, encode
from stoker.core.job import RunPins
from stoker.core.run_config import TierShares
from stoker.core.schedule import LinkSpeeds, TierSchedule, UnitSpec, pinned_bytes
from stoker.core.units import GIB
from stoker.techniques.placement import TIERS
from stoker.techniques.placement.replay import TierSeconds, both_ways_s, replay_bytes, replay_seconds

# One H200 and its host, as measured for the engine's design: 55.5 GB/s one way, 49 both ways, 122 GB/s of DRAM
H200 = LinkSpeeds(
    to_device_bytes_per_s=55.5e9,
    from_device_bytes_per_s=55.5e9,
    duplex_frac=49.0 / 55.5,
    dram_bytes_per_s=122e9,
    nvme_read_bytes_per_s=2e9,
    nvme_write_bytes_per_s=2e9,
)
ENGINE = TierShares(state=1.0, weights=1.0, gradients=1.0, activations=1.0, layer_major=True, exact_pinned=True)


def units(params: float, count: int = 30, *, state: float = 12.0, boundary: int = 0) -> tuple[UnitSpec, ...]:
    """`count` equal units of a model in bf16: 2 + 2 bytes a parameter, and `state` off the GPU."""
    each = params / count
    return tuple(
        UnitSpec(
            name=f"unit.{index}",
            weight_bytes=round(2 * each),
            grad_bytes=round(2 * each),
            state_bytes=round(state * each),
            trainable_params=round(each),
            boundary_bytes=boundary,
        )
        for index in range(count)
    )


def seconds(
    params: float, shares: TierShares, speeds: LinkSpeeds = H200, *, forward_s: float, backward_s: float, state: float
) -> TierSeconds:
    schedule = TIERS.schedule(units(params, state=state), shares, speeds, micro_batches=1)
    return replay_seconds(schedule, speeds, forward_s=forward_s, backward_s=backward_s)


def test_case_33_pinned_memory_rounds_up_to_a_power_of_two() -> None:
    assert pinned_bytes(257 * GIB, exact=False) == 512 * GIB
    assert pinned_bytes(round(2.25 * GIB), exact=False) == 4 * GIB
    assert pinned_bytes(2 * 4_347_592_704, exact=False) == 16 * GIB
    assert pinned_bytes(2 * 4_347_592_704, exact=True) == 8_695_185_408
    assert pinned_bytes(4 * GIB, exact=False) == 4 * GIB


def test_case_33_the_plan_counts_the_rounded_size() -> None:
    """One unit whose state takes 2.25 GiB: 4 GiB of host memory on the stock allocator, 2.25 in an exact slab."""
    unit = UnitSpec(
        name="all", weight_bytes=0, grad_bytes=0, state_bytes=round(2.25 * GIB), trainable_params=1, boundary_bytes=0
    )
    sizes = {
        exact: replay_bytes(
            TIERS.schedule((unit,), TierShares(update="gpu", exact_pinned=exact), H200, micro_batches=1)
        ).dram_bytes
        for exact in (False, True)
    }
    assert sizes == {False: 4 * GIB, True: round(2.25 * GIB)}


@pytest.mark.parametrize(("bandwidth", "expected_s"), [(50e9, 0.81), (20e9, 2.025)])
def test_case_35_cpu_adam_is_bound_by_the_memory_of_the_host(bandwidth: float, expected_s: float) -> None:
    """1.35e9 parameters x 30 bytes = 40.5 GB; a measured 22.9 s is 28 times the bound at 50 GB/s."""
    speeds = replace(H200, dram_bytes_per_s=bandwidth)
    found = seconds(1.35e9, TierShares(update="cpu"), speeds, forward_s=0.4, backward_s=0.8, state=12.0)
    assert found.update_s == pytest.approx(expected_s, rel=1e-3)
    assert found.exposed_s >= found.update_s
    assert bandwidth != 50e9 or 22.9 / found.update_s > 3.0


def test_the_engines_probe_on_an_h200_is_met() -> None:
    """3.21 B parameters, 10 bytes of state each, clipping on: 1.02 s of compute became 1.48 s at 16k tokens, and 3.97
    became 4.15 s at 65k (benchmark of the design, 2026): 32 GB up and down take 0.66 s, forward hides the rest.
    """
    shares = replace(ENGINE, weights=0.0, gradients=0.0, activations=0.0, update="gpu")
    short = seconds(3.21e9, shares, forward_s=0.25, backward_s=0.77, state=10.0)
    assert short.update_s == pytest.approx(0.66, abs=0.01)
    assert 1.02 + short.exposed_s == pytest.approx(1.48, rel=0.05)
    long = seconds(3.21e9, shares, forward_s=0.97, backward_s=3.0, state=10.0)
    assert 3.97 + long.exposed_s == pytest.approx(4.15, rel=0.05)


def test_offload_with_the_update_in_the_open_is_slower_as_measured() -> None:
    """The same shape under DeepSpeed's ZeRO-2 offload took 2.55 s: CPU Adam at the DRAM's limit, nothing hidden."""
    found = seconds(3.21e9, TierShares(update="cpu", gradients=1.0), forward_s=0.25, backward_s=0.77, state=12.0)
    assert 1.02 + found.exposed_s == pytest.approx(2.55, rel=0.3)
    assert found.exposed_s > seconds(3.21e9, ENGINE, forward_s=0.25, backward_s=0.77, state=10.0).exposed_s


def test_all_state_on_one_disk_costs_twenty_bytes_a_parameter() -> None:
    """10 bytes read and 10 written, 3.2 B parameters, 2 GB/s: 32 s, and 32 GB of wear a step."""
    shares = replace(ENGINE, weights=0.0, gradients=0.0, activations=0.0, nvme=1.0)
    found = seconds(3.2e9, shares, forward_s=0.25, backward_s=0.77, state=10.0)
    assert found.nvme_s == pytest.approx(32.0, rel=0.01)
    assert found.exposed_s == pytest.approx(32.0 - 1.02, rel=0.02)
    assert found.nvme_written_bytes == pytest.approx(32e9, rel=0.01)


def test_the_lane_follows_the_bandwidths() -> None:
    """State streams through the GPU where the link both ways beats a third of the DRAM."""
    update = {
        dram: {
            place.update
            for place in TIERS.schedule(
                units(1e9), ENGINE, replace(H200, dram_bytes_per_s=dram), micro_batches=1
            ).placements
        }
        for dram in (122e9, 600e9)
    }
    assert update == {122e9: {"gpu_stream"}, 600e9: {"cpu"}}


def test_every_byte_lies_in_exactly_one_tier() -> None:
    schedule = TIERS.schedule(units(1e9), replace(ENGINE, weights=0.5, nvme=0.25), H200, micro_batches=1)
    found = replay_bytes(schedule)
    tiers = {
        tier: sum(u.state_bytes for u, p in zip(schedule.units, schedule.placements, strict=True) if p.state == tier)
        for tier in ("hbm", "dram", "nvme")
    }
    assert tiers["hbm"] == 0 and sum(tiers.values()) == pytest.approx(12e9, rel=1e-6)
    assert tiers["nvme"] == pytest.approx(0.25 * 12e9, abs=12e9 / 30)
    assert found.resident["weights"] == pytest.approx(1e9, rel=1e-6)
    assert found.nvme_bytes == tiers["nvme"]


def test_more_off_the_gpu_means_less_on_it_and_never_a_faster_step() -> None:
    last_bytes, last_s = float("inf"), -1.0
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        shares = TierShares(state=share, gradients=share)
        schedule = TIERS.schedule(units(3e9), shares, H200, micro_batches=1)
        resident = sum(replay_bytes(schedule).resident.values())
        exposed = replay_seconds(schedule, H200, forward_s=0.2, backward_s=0.4).exposed_s
        assert resident < last_bytes and exposed >= last_s
        last_bytes, last_s = resident, exposed


def test_weights_cross_twice_a_step_layer_by_layer_and_twice_a_micro_batch_else() -> None:
    streamed = {
        layer_major: replay_seconds(
            TIERS.schedule(
                units(8e9), replace(ENGINE, activations=0.0, layer_major=layer_major), H200, micro_batches=8
            ),
            H200,
            forward_s=1.0,
            backward_s=2.0,
        ).stream_s
        for layer_major in (True, False)
    }
    assert streamed[False] == pytest.approx(8 * streamed[True], rel=1e-6)


def test_a_layer_major_step_keeps_the_mean_of_its_micro_batches_not_the_fullest() -> None:
    """8 micro-batches of which the fullest is four times the mean: two of the fullest, not eight."""
    schedule = TIERS.schedule(units(1e9, boundary=10**6), replace(ENGINE, activations=0.0), H200, micro_batches=8)
    assert replay_bytes(schedule).resident["activations"] == 8 * 30 * 10**6
    assert replay_bytes(replace(schedule, mean_boundary_frac=0.25)).resident["activations"] == 2 * 30 * 10**6
    alone = replace(schedule, mean_boundary_frac=0.01)
    assert replay_bytes(alone).resident["activations"] == 30 * 10**6


def test_the_first_embedding_keeps_its_state_longest() -> None:
    """Its update is last in backward and first in forward."""
    schedule = TIERS.schedule(units(1e9), TierShares(state=0.9), H200, micro_batches=1)
    assert [place.state for place in schedule.placements][:2] == ["hbm", "hbm"]
    assert schedule.placements[2].state == "dram"


def test_two_directions_share_the_link() -> None:
    assert both_ways_s(1.0, 0.0, 0.5) == 1.0
    assert both_ways_s(1.0, 1.0, 0.5) == 2.0
    assert both_ways_s(1.0, 3.0, 0.5) == 4.0


def test_a_schedule_survives_json_and_refuses_units_without_a_place() -> None:
    schedule = TIERS.schedule(units(1e9, 3), ENGINE, H200, micro_batches=2)
    assert decode(TierSchedule, encode(schedule)) == schedule
    with pytest.raises(ValueError, match="one placement a unit"):
        replace(schedule, placements=schedule.placements[1:])


def test_phases_under_tiers_hold_what_each_phase_holds() -> None:
    """Llama-3.1-8B in bf16 on 24 GB, everything in DRAM: 16 bytes a parameter lie there, the masters' high halves once.

    Loading holds the context alone; evaluation and saving the buffers, and evaluation the logits beside them.
    """
    run = RunPins(precision="bf16", recompute="full", loss="eager", micro_batch_size=1, placement="tiers")
    job = lm_job(gpus=["RTX4090"], num_gpus=1, batch=1, tokens=8192, run=run)
    memory = plan_of(job, LLAMA_8B).candidates[0].memory
    phases, context = memory.phases, memory.terms["framework"]
    assert phases["load"] == context and max(phases.values()) == phases["backward"]
    assert context < phases["save"] < phases["optimizer"] + 1 and phases["save"] < phases["evaluation"]
    assert phases["evaluation"] - phases["save"] == pytest.approx(6 * 8192 * 128_256, rel=0.02)  # bf16 and fp32 logits
    assert memory.peak_allocated_bytes + context == phases["backward"]
    assert sum(memory.terms.values()) == memory.expected_bytes
    assert memory.tiers["dram"] == pytest.approx(14 * 8_030_261_248, rel=0.03)  # 2 + 2 + 10
    short = lm_job(gpus=["RTX4090"], num_gpus=1, batch=1, tokens=128, run=run)
    small = plan_of(short, LLAMA_8B).candidates[0].memory
    assert small.peak_allocated_bytes + small.terms["framework"] == max(small.phases.values())
    assert sum(small.terms.values()) == small.expected_bytes
