"""Any row of known words, however senseless together, gets an ordered prediction or a reason: one row that breaks the
command would take the scores of all others with it.
"""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.cli.main import main
from stoker.core.measurement import Measurement
from stoker.validation.predict import predict
from stoker.validation.run import compare
from stoker.validation.summary import summarise, summary_json
from stoker.validation.table import Row
from stoker.validation.trial import Trial

EFFICIENCY = replace(load_efficiency(), corrections=())
WORDS: dict[str, tuple[Any, ...]] = {
    "source": ("litgpt", "timm", "ms-swift", "some blog", "NVIDIA/NeMo"),
    "model": ("llama-2-7b", "hardcorenas_a", "resnet50", "vit_base_patch16_224", "Mixtral-8x7B", "bert-base", ""),
    "metric": ("peak_mem_gb", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "step_time_s", "seconds_total", "oom"),
    "unit": ("GB", "GiB reserved", "tok/s/gpu", "s", "ms", ""),
    "method": ("full", "lora", "qlora", "full (pretrain)", "linear probe", ""),
    "precision": ("bf16-true", "FP8 (TE)", "fp16 amp", "fp32", "nf4", "tf32", ""),
    "optimizer": ("adamw", "distributed adam", "paged_adamw_8bit", "muon", ""),
    "gpu": ("H100-80GB-SXM", "T4", "H100", "V100-32GB", "MI300X", "TPU v5", "4xA10G", ""),
    "gpu_gb": (None, 0.1, 80.0, 1e9),
    "strategy": (
        "single",
        "megatron:TP4,PP4,CP1,VP20",
        "megatron:TP3,PP99",
        "fsdp",
        "DDP",
        "zero3 offload",
        "EP7",
        "device_map",
        "",
    ),
    "recompute": ("yes", "selective", "unstated", ""),
    "attention": ("yes", "no", "eager", ""),
    "num_gpus": (None, 1, 3, 64, 100_000),
    "num_params": (None, 1, 7_000_000_000, 10**15),
    "micro_batch_size": (None, 1, 7, 10**6),
    "global_batch_size": (None, 1, 128, 10**9),
    "seq_len": (None, 1, 512, 10**7),
    "value": (1e-9, 0.001, 20.0, 1707.0, 1e15),
    "note": ("", "compile; cp=1; micro_batches/step=2", "rank=0", "img_size=33", "samples=1; epochs=0"),
}  # fmt: skip
USUAL: dict[str, Any] = {name: words[0] for name, words in WORDS.items()} | {
    "unit": "",
    "num_gpus": 1,
    "micro_batch_size": 1,
    "global_batch_size": 1,
    "seq_len": 512,
    "value": 20.0,
}


def rows_of(seed: int, count: int) -> list[Row]:
    chance = random.Random(seed)
    made = []
    for line in range(2, count + 2):
        strange = chance.sample(sorted(WORDS), chance.choice((1, 2, 4, 8)))
        cells = USUAL | {name: chance.choice(WORDS[name]) for name in strange}
        made.append(Row(columns={}, line=line, measurement=Measurement(table="table", line=line, **cells)))
    return made


@pytest.mark.parametrize("seed", [0, 1, 2, 15])  # 15 deals a network of one block over three GPUs
def test_any_row_has_a_prediction_or_a_reason(seed: int) -> None:
    compared = compare(rows_of(seed, 300), EFFICIENCY)
    predicted = [row.prediction for row in compared if row.prediction is not None]
    assert len(predicted) >= 60, "enough of them must get as far as an estimate"
    assert all((row.prediction is None) == bool(row.reason) for row in compared)
    assert [row.reason for row in compared if row.is_bug] == []
    for found in predicted:
        assert 0.0 <= found.low <= found.expected <= found.high < math.inf
        assert found.fit_probability is None or 0.0 <= found.fit_probability <= 1.0
    assert summary_json(summarise(compared))


def test_a_model_cut_into_more_stages_than_it_has_blocks_is_not_scored() -> None:
    """hardcorenas_a has fewer blocks than the 4 x 20 chunks of TP4,PP4,VP20."""
    cells = USUAL | {
        "model": "hardcorenas_a",
        "metric": "samples_per_s_per_gpu",
        "strategy": "megatron:TP4,PP4,CP1,VP20",
        "num_gpus": 64,
        "global_batch_size": 128,
    }
    (row,) = compare([Row(columns={}, line=2, measurement=Measurement(table="table", line=2, **cells))], EFFICIENCY)
    assert row.prediction is None and row.reason


def test_a_fault_costs_its_own_row_only_and_the_exit_code_tells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sound = predict

    def faulty(trial: Trial) -> object:
        if trial.measurement.line == 3:
            raise ZeroDivisionError("made up")
        return sound(trial)

    monkeypatch.setattr("stoker.validation.run.predict", faulty)
    monkeypatch.delenv("STOKER_TRACEBACK", raising=False)
    file = tmp_path / "rows.csv"
    row = "x,llama-2-7b,A100-80GB-SXM,peak_mem_gb,20,lora,bf16,1,1,512,GiB\n"
    file.write_text("source,model,gpu,metric,value,method,precision,n_gpus,micro_batch,seq_len,unit\n" + 3 * row)
    with pytest.raises(SystemExit) as ended:
        main(["validate", "--rows", str(file), "--json"])
    shown = capsys.readouterr()
    rows = json.loads(shown.out)["rows"]
    assert [one["predicted"] is not None for one in rows] == [True, False, True]
    assert "ZeroDivisionError" in rows[1]["not_scored"]
    assert ended.value.code == 1 and "line 3" in shown.err
