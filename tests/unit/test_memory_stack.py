"""Facts of other programs change the ledger as those programs hold it; each figure is counted beside its assertion."""

from dataclasses import replace

import pytest

from stoker.catalogue.models.api import arch_from_config
from stoker.core.job import DataSpec, Job, TrainSpec, TuneSpec
from stoker.core.ledger import Ledger
from stoker.core.run_config import RunConfig
from stoker.core.stack import Stack
from stoker.estimators.ledger_sums import LedgerSums, sum_ledger
from stoker.estimators.memory_stack import as_stack
from stoker.techniques.passes import apply_passes

LLAMA_1B = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
HEAD = 2048 * 128256
PLAIN = Stack(name="plain")


def ledger_of(*, method: str = "lora", precision: str = "bf16_pure", recompute: str = "none") -> Ledger:
    arch = arch_from_config(LLAMA_1B, task="causal_lm", num_labels=None, name="llama")
    tune = TuneSpec(method=method, rank=16)  # type: ignore[arg-type]
    job = Job(
        model="llama",
        task="causal_lm",
        data=DataSpec(num_samples=1),
        tune=tune,
        train=TrainSpec(global_batch_size=1, seq_len=1024),
    )
    config = RunConfig(
        micro_batch_size=1,
        gradient_accumulation_steps=1,
        global_batch_size=1,
        precision=precision,  # type: ignore[arg-type]
        recompute=recompute,  # type: ignore[arg-type]
    )
    return apply_passes(arch, job, config)


def sums(ledger: Ledger, **facts: object) -> LedgerSums:
    return sum_ledger(as_stack(ledger, replace(PLAIN, **facts)))  # type: ignore[arg-type]


def block_bytes(found: LedgerSums) -> float:
    return next(unit.saved_bytes for unit in found.units if unit.kind == "block")


def test_a_head_of_its_own_is_one_more_matrix_of_sixteen_bits() -> None:
    ledger = ledger_of()
    assert sums(ledger, own_head=True).params_bytes - sums(ledger).params_bytes == 2 * HEAD


def test_frozen_weights_in_fp32_take_four_bytes() -> None:
    ledger = ledger_of()
    frozen = ledger.arch.num_params
    wide, plain = sums(ledger, frozen_in_fp32=True), sums(ledger)
    assert wide.params_bytes - plain.params_bytes == pytest.approx(2 * frozen)


def test_weights_stay_as_loaded_under_autocast() -> None:
    """Our autocast holds embeddings in fp32; a program that loads 16-bit weights does not."""
    ledger = ledger_of(precision="bf16_amp")
    assert sum_ledger(ledger).params_bytes - sums(ledger).params_bytes == pytest.approx(2 * HEAD + 2 * 33 * 2048)


def test_narrow_adapters_take_half_of_everything() -> None:
    ledger = ledger_of()
    wide, narrow = sums(ledger), sums(ledger, narrow_adapters=True)
    adapters = ledger.num_adapter_params
    assert wide.params_bytes - narrow.params_bytes == 2 * adapters
    assert narrow.grads_bytes == 2 * adapters
    assert narrow.optimizer_bytes == pytest.approx(4 * adapters)
    assert block_bytes(narrow) < block_bytes(wide)


def test_a_fused_projection_keeps_rotated_queries_and_keys_beside_it() -> None:
    """2 bytes x (32 + 8 heads) x 64."""
    ledger = ledger_of()
    assert block_bytes(sums(ledger, fused_qkv=True)) - block_bytes(sums(ledger)) == 2 * 40 * 64


def test_a_scale_on_every_linear_keeps_its_output() -> None:
    """Outputs of q, k, v, o, gate, up and down: 2 bytes x (2048 + 512 + 512 + 2048 + 8192 + 8192 + 2048)."""
    ledger = ledger_of()
    assert block_bytes(sums(ledger, keeps_outputs=True)) - block_bytes(sums(ledger)) == 2 * 23552


def test_four_bit_products_keep_their_inputs_where_they_do() -> None:
    """Inputs of qkv, of o, of gate and up (2048 each) and of down (8192), 2 bytes, once and twice."""
    ledger = ledger_of(method="qlora")
    plain = block_bytes(sums(ledger))
    assert block_bytes(sums(ledger, kbit_keeps_inputs=1)) - plain == 2 * (3 * 2048 + 8192)
    assert block_bytes(sums(ledger, kbit_keeps_inputs=2)) - plain == 4 * (3 * 2048 + 8192)


def test_fused_norms_keep_sixteen_bits() -> None:
    """Two norms a block: the fp32 input of each shrinks by 2 bytes x 2048."""
    ledger = ledger_of()
    assert block_bytes(sums(ledger)) - block_bytes(sums(ledger, fused_norms=True)) == 2 * 2 * 2048


def test_an_undescribed_program_changes_nothing_under_recompute() -> None:
    ledger = ledger_of(recompute="full")
    assert sums(ledger).units == sum_ledger(ledger).units
