"""Proves under two gloo ranks that parallel techniques shard, send and compute what they declare.

Gradients of two ranks with very unequal numbers of tokens equal those of one process over all of them (cases 16, 21).
"""

import json
from typing import Any

import pytest
import torch
from ranks import WORLD, build, counted, in_rank, loss_sum, tokens_of
from tiny_models import MODELS, a_config, a_job

from stoker.core.ledger import Ledger
from stoker.core.run_config import Parallel
from stoker.techniques.parallel import parallel
from stoker.techniques.passes import apply_passes

METHODS = ("full", "lora")
FORMATS = {"fp32": 1e-5, "bf16": 2e-2}  # tolerance of gradients
MICRO_BATCHES = 2
JOBS: list[tuple[str, str, dict[str, Any]]] = [
    *(
        (f"ddp {method} {recomputed}", "ddp", {"method": method, "recomputed": recomputed, "unused_head": False})
        for method in METHODS
        for recomputed in (False, True)
    ),
    *((f"unused {method}", "ddp", {"method": method, "recomputed": True, "unused_head": True}) for method in METHODS),
    *(
        (
            f"fsdp {method} {number_format}",
            "fsdp",
            {"method": method, "number_format": number_format, "micro_batches": MICRO_BATCHES},
        )
        for method in METHODS
        for number_format in FORMATS
    ),
]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of all jobs, of both ranks: two processes in all, since starting one takes longer than the work."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(in_rank, args=(JOBS, str(folder)), nprocs=WORLD)
    return [json.loads((folder / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(WORLD)]


def gradients_of_one_process(method: str, number_format: str = "fp32") -> dict[str, torch.Tensor]:
    """Gradients of the mean loss over the tokens of both ranks."""
    model, _arch = build(method, number_format, recomputed=False)
    for rank in range(WORLD):
        (loss_sum(model, tokens_of(rank)) / counted()).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(ours: dict[str, Any], theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        torch.testing.assert_close(
            torch.tensor(ours[name]),
            expected.float(),
            rtol=tolerance,
            atol=tolerance,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def ledger_of(method: str, number_format: str, degrees: Parallel, micro_batches: int = 1) -> tuple[Ledger, Any]:
    arch = MODELS["llama"]()[1]
    config = a_config(
        precision=number_format,
        parallel=degrees,
        gradient_accumulation_steps=micro_batches,
        global_batch_size=2 * WORLD * micro_batches,
    )
    return apply_passes(arch, a_job(arch, method=method, rank=4), config), config


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("recomputed", [False, True])
def test_ddp_gives_the_gradient_of_one_process(method: str, recomputed: bool, two_ranks: list[dict[str, Any]]) -> None:
    results = [rank[f"ddp {method} {recomputed}"] for rank in two_ranks]
    expected = gradients_of_one_process(method)
    for result in results:
        assert_same_gradients(result["grads"], expected, 1e-5)
    degrees = Parallel(dp_replicate=WORLD)
    ledger, config = ledger_of(method, "fp32", degrees)
    declared = sum(c.num_bytes * c.count for c in parallel(degrees).collectives(ledger, config))
    assert sum(results[0]["sent"]) == declared


@pytest.mark.parametrize("method", METHODS)
def test_case_21_what_gets_no_gradient_is_named_and_training_runs(method: str, two_ranks: list[dict[str, Any]]) -> None:
    """Recomputation and a head that nobody uses, with the search for unused parameters off."""
    expected = gradients_of_one_process(method)
    for rank in two_ranks:
        result = rank[f"unused {method}"]
        assert result["idle"] == ["spare_head.weight", "spare_head.bias"]
        assert_same_gradients(result["grads"], expected, 1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number_format", FORMATS)
def test_fsdp_shards_gathers_and_computes_what_it_declares(
    method: str, number_format: str, two_ranks: list[dict[str, Any]]
) -> None:
    results = [rank[f"fsdp {method} {number_format}"] for rank in two_ranks]
    degrees = Parallel(dp_shard=WORLD)
    ledger, config = ledger_of(method, number_format, degrees, MICRO_BATCHES)
    declared = {
        "weights": sum(
            g.repeats
            * (g.num_params * g.weight_bytes_per_param + g.adapter_params * g.adapter_bytes_per_param)
            / g.weight_shards
            for g in ledger.groups
        ),
        "grad_bytes": sum(
            g.repeats
            * (g.base_trainable * g.grad_bytes_per_param + g.adapter_params * g.adapter_bytes_per_param)
            / g.grad_shards
            for g in ledger.groups
        ),
        "state": sum(g.repeats * g.state_bytes / g.state_shards for g in ledger.groups),
        "masters": sum(g.repeats * g.base_trainable * g.master_bytes_per_param / g.state_shards for g in ledger.groups),
    }
    expected = gradients_of_one_process(method, number_format)
    for result in results:
        assert {key: result[key] for key in declared} == declared
        assert_same_gradients(result["grads"], expected, FORMATS[number_format])
    for operation in ("all_gather", "reduce_scatter"):
        of_kind = [c for c in parallel(degrees).collectives(ledger, config) if c.operation == operation]
        assert sum(results[0]["sent"][operation]) == sum(c.num_bytes * c.count for c in of_kind)
        assert len(results[0]["sent"][operation]) == sum(c.count for c in of_kind)
