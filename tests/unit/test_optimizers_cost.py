"""Proves the arithmetic of optimizer states by hand, for a block of Llama 3.1 8B and its embedding.

That torch and bitsandbytes hold the same: tests/contract/test_optimizers.py.
"""

import pytest

from stoker.core.ledger import Linear, ModuleGroup
from stoker.techniques.optimizer import OPTIMIZERS, optimizer

SHAPES = ((4096, 4096), (4096, 1024), (4096, 1024), (4096, 4096), (4096, 14336), (4096, 14336), (14336, 4096))
NORMS = 2 * 4096
MATRICES = sum(rows * columns for rows, columns in SHAPES)
BLOCK = ModuleGroup(
    name="layers",
    kind="block",
    num_params=MATRICES + NORMS,
    linears=tuple(Linear(name=str(i), in_features=a, out_features=b) for i, (a, b) in enumerate(SHAPES)),
)
VOCAB = 128_256
EMBEDDING = ModuleGroup(name="embed_tokens", kind="embedding", num_params=VOCAB * 4096, tables=((VOCAB, 4096),))


@pytest.mark.parametrize(
    ("name", "block", "embedding"),
    [
        ("adamw", 8 * (MATRICES + NORMS), 8 * VOCAB * 4096),
        ("sgd", 4 * (MATRICES + NORMS), 4 * VOCAB * 4096),
        ("lion", 4 * (MATRICES + NORMS), 4 * VOCAB * 4096),
        ("muon", 4 * MATRICES + 8 * NORMS, 8 * VOCAB * 4096),
        # two bytes and two fp32 scales per 256 elements; vectors and embeddings as before
        ("adamw_8bit", 2 * MATRICES + 8 * MATRICES // 256 + 8 * NORMS, 8 * VOCAB * 4096),
        ("paged_adamw_8bit", 2 * MATRICES + 8 * MATRICES // 256 + 8 * NORMS, 8 * VOCAB * 4096),
        ("paged_adamw", 8 * (MATRICES + NORMS), 8 * VOCAB * 4096),
        # one row and one column a matrix, vectors in full
        ("adafactor", 4 * (sum(a + b for a, b in SHAPES) + NORMS), 4 * (VOCAB + 4096)),
    ],
)
def test_state_bytes(name: str, block: int, embedding: int) -> None:
    assert optimizer(name).state_bytes(BLOCK) == block
    assert optimizer(name).state_bytes(EMBEDDING) == embedding


def test_every_optimizer_is_checked_here() -> None:
    assert {technique.name for technique in OPTIMIZERS} == {
        "adamw",
        "sgd",
        "lion",
        "muon",
        "adamw_8bit",
        "paged_adamw_8bit",
        "paged_adamw",
        "adafactor",
    }


def test_only_paged_states_may_page() -> None:
    assert {t.name for t in OPTIMIZERS if t.states_may_page} == {"paged_adamw", "paged_adamw_8bit"}


def test_muon_multiplies_and_the_others_do_not() -> None:
    """Five times (4 m^2 n + 2 m^3) a matrix, m its shorter side: as much as training on 15,900 tokens (6 N each)."""
    by_hand = 5 * sum(4 * min(s) ** 2 * max(s) + 2 * min(s) ** 3 for s in SHAPES)
    assert optimizer("muon").step_flops(BLOCK) == by_hand
    assert by_hand / (6 * MATRICES) == pytest.approx(15_900, rel=0.001)
    assert all(t.step_flops(BLOCK) == 0 for t in OPTIMIZERS if t.name != "muon")
    assert optimizer("muon").step_flops(EMBEDDING) == 0


def test_frozen_parameters_have_no_state() -> None:
    from dataclasses import replace

    for technique in OPTIMIZERS:
        assert technique.state_bytes(replace(BLOCK, trainable_params=0)) == 0


def test_bytes_that_a_step_moves() -> None:
    """fp32: gradient, value in and out, states in and out."""
    moved = {t.name: t.step_bytes_per_param(4.0, 0.0, 4.0) for t in OPTIMIZERS}
    assert moved["adamw"] == moved["paged_adamw"] == 4 + 8 + 16
    assert moved["adamw_8bit"] == 4 + 8 + 4
    assert moved["sgd"] == 4 + 8 + 8
    assert moved["sgd"] < moved["muon"] == moved["lion"] < moved["adafactor"]  # nothing of these is fused
