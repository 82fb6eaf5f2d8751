"""Proves that 4-bit models take what was measured: 45 QLoRA runs of 11 models on a T4, by kind of weight.

Truth: fitcheck_t4_components.csv of the public validation data (fitcheck-llm 0.3.1, 2026-09-21): packed nf4 values,
their scales, and what peft's prepare_model_for_kbit_training left in fp32 (which holds the adapters too). Bound: 1 %
by kind; packed values and scales exactly.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stoker.catalogue.models.api import arch_from_config
from stoker.core.job import DataSpec, Job, TrainSpec, TuneSpec
from stoker.core.ledger import Ledger
from stoker.core.run_config import RunConfig
from stoker.core.units import MIB
from stoker.techniques.adapter.qlora import quantised_linears
from stoker.techniques.passes import apply_passes

TABLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "validation" / "fitcheck_t4_components.csv"


def rows() -> list[dict[str, str]]:
    if not TABLE.exists():
        return []
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["quantization"] == "nf4" and row["cfg_head_dim"]]


def a_ledger(row: Mapping[str, str]) -> Ledger:
    config: dict[str, Any] = {
        "model_type": "qwen2" if "Qwen2" in row["model"] else "llama",
        "hidden_size": int(row["cfg_hidden_size"]),
        "intermediate_size": int(row["cfg_intermediate_size"]),
        "num_hidden_layers": int(row["cfg_num_layers"]),
        "num_attention_heads": int(row["cfg_num_attention_heads"]),
        "num_key_value_heads": int(row["cfg_num_kv_heads"]),
        "head_dim": int(row["cfg_head_dim"]),
        "vocab_size": int(row["cfg_vocab_size"]),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": row["cfg_tie_word_embeddings"] == "True",
    }
    tune = TuneSpec(
        method="qlora",
        rank=int(row["lora_rank"]),
        targets=row["lora_targets"].split(),
        double_quant=row["double_quant"] == "True",
        unquantised="fp32",
    )
    data = DataSpec(num_samples=1, tokens_mean=8, tokens_p99=8, tokens_max=8)
    job = Job(model="m", task="causal_lm", data=data, tune=tune, train=TrainSpec())
    arch = arch_from_config(config, task="causal_lm", num_labels=None, name=row["model"])
    run = RunConfig(micro_batch_size=1, gradient_accumulation_steps=1, global_batch_size=1, precision="fp16_amp")
    return apply_passes(arch, job, run)


@pytest.mark.skipif(not TABLE.exists(), reason="the public validation data are not here")
def test_weights_by_kind_are_what_was_measured() -> None:
    measured = rows()
    assert (len(measured), len({row["model"] for row in measured})) == (45, 11)
    for row in measured:
        ledger = a_ledger(row)
        packed = sum(
            g.repeats * lin.in_features * lin.out_features // 2 for g in ledger.groups for lin in quantised_linears(g)
        )
        four_bit = sum(g.repeats * g.quantised_bytes for g in ledger.groups)
        whole = sum(
            g.repeats * (g.num_params * g.weight_bytes_per_param + g.adapter_params * g.adapter_bytes_per_param)
            for g in ledger.groups
        )
        assert packed / MIB == float(row["w_nf4_packed"]), row["model"]
        assert (four_bit - packed) / MIB == pytest.approx(float(row["w_quant_scales"]), rel=1e-9), row["model"]
        assert (whole - four_bit) / MIB == pytest.approx(float(row["w_unquantized_fp32"]), rel=0.01), row["model"]
        assert ledger.num_trainable == int(row["trainable_params"]), row["model"]
        state = sum(g.repeats * g.state_bytes for g in ledger.groups)
        assert state / MIB == pytest.approx(float(row["optimizer_state_mib"]), rel=0.001), row["model"]
