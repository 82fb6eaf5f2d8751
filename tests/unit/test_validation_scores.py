"""Scores by hand: rows whose predictions are stated here, so that quantiles and decisions count on fingers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.core.errors import BadInput
from stoker.core.estimate import MemoryEstimate
from stoker.core.measurement import Measurement
from stoker.core.units import GIB
from stoker.validation.calibrated import calibrated
from stoker.validation.decisions import fit_decisions, rank_pairs
from stoker.validation.physics import impossible
from stoker.validation.predict import Prediction, bytes_of_unit, memory_in, predict, reading_of
from stoker.validation.run import Compared, compare
from stoker.validation.score import count_once, quantile, score, score_of_sources, scores_by
from stoker.validation.summary import rows_json, summarise
from stoker.validation.table import Row, read_table, rows_of
from stoker.validation.totals import read_training
from stoker.validation.trial import Trial, build_trial
from stoker.validation.wording import Gap

EFFICIENCY = replace(load_efficiency(), corrections=())


def row(source: str, value: float, predicted: float, **columns: Any) -> Compared:
    """A Llama-2-7B step of `value` seconds, with a prediction of `predicted` in an interval of 20 %."""
    values: dict[str, Any] = {
        "table": "t",
        "model": "llama-2-7b",
        "metric": "step_time_s",
        "unit": "s",
        "method": "full",
        "precision": "bf16",
        "gpu": "A100-80GB-SXM",
        "num_gpus": 1,
        "strategy": "single",
        "micro_batch_size": 1,
        "seq_len": 512,
        **columns,
    }
    fits = values.pop("fits", 1.0)
    memory = values.pop("memory", None)
    found = Measurement(source=source, value=value, **values)
    trial = build_trial(found, EFFICIENCY)
    assert isinstance(trial, Trial), trial
    prediction = Prediction(
        expected=predicted,
        low=0.8 * predicted,
        high=1.2 * predicted,
        fit_probability=fits,
        step_s=predicted,
        memory=memory,
    )
    return Compared(row=Row(columns={}, line=1, measurement=found), prediction=prediction, trial=trial)


def test_quantiles_are_linear_between_neighbours() -> None:
    assert quantile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.5
    assert quantile([0.0, 10.0], 0.9) == pytest.approx(9.0)
    assert quantile([7.0], 0.9) == 7.0


def test_errors_count_once_a_run_and_sources_weigh_alike() -> None:
    """Source a: errors 10 % and 30 % (two readings of one run: 20 %) and 40 %; source b: 0 %."""
    rows = [
        row("a", 1.0, 1.1),
        row("a", 1.0, 1.3),  # the same run read again
        row("a", 1.0, 1.4, seq_len=1024),
        row("b", 1.0, 1.0),
    ]
    counted = count_once(rows)
    assert sorted(one.error for one in counted) == pytest.approx([0.0, 0.2, 0.4])
    pooled, sources = score(counted), score_of_sources(counted)
    assert pooled is not None and sources is not None
    assert pooled.median == pytest.approx(0.2)
    assert sources.median == pytest.approx((0.3 + 0.0) / 2)
    assert sources.sources == 2
    assert {name: found.n for name, found in scores_by(counted, lambda one: one.source).items()} == {"a": 2, "b": 1}


def test_a_rate_is_scored_on_its_step_time() -> None:
    """Twice the samples a second is half the time: an error of 50 %, not of 100 %."""
    (one,) = count_once([row("a", 10.0, 20.0, metric="samples_per_s_per_gpu", unit="samples/s/gpu")])
    assert one.error == pytest.approx(0.5)
    assert one.ratio == pytest.approx(0.5)


def test_a_measured_time_beyond_the_high_end_is_told_for_rates_too() -> None:
    slow = row("a", 2.0, 1.0)  # twice as long as expected, high 1.2
    slow_rate = row("b", 1.0, 2.0, metric="samples_per_s_per_gpu", unit="samples/s/gpu")
    assert [one.above for one in count_once([slow, slow_rate])] == [True, True]
    assert [one.inside for one in count_once([slow, slow_rate])] == [False, False]


def test_rows_that_their_source_excluded_stand_by_role_only() -> None:
    summary = summarise([row("a", 1.0, 1.1), row("a", 1.0, 9.0, seq_len=64, role="excluded")])
    scores = summary.quantities["step_time"]
    assert (scores.pooled.n, scores.pooled.median) == (1, pytest.approx(0.1))
    assert set(scores.by_role) == {"none", "excluded"}


def test_fit_decisions_count_a_run_once() -> None:
    rows = [
        row("a", 1.0, 1.0, fits=0.9),
        row("a", 1.0, 1.0, fits=0.9),
        row("a", 1.0, 1.0, seq_len=64, fits=0.2),
        row("a", 1.0, 0.0, metric="oom", unit="bool", seq_len=4096, fits=0.49),
        row("a", 1.0, 0.0, metric="oom", unit="bool", seq_len=2048, fits=0.5),
    ]
    out_of_memory, ran = fit_decisions(rows)
    assert (out_of_memory.right, out_of_memory.n) == (1, 2)
    assert (ran.right, ran.n) == (1, 2)
    assert len(ran.wrong) == 1


def test_pairs_of_gpus_are_ranked_where_they_differ() -> None:
    """A100 2.0 s against H100 1.0 s predicted right; 2 % apart: a tie; a vendor's claim: left out."""
    rows = [
        row("a", 2.0, 2.2),
        row("a", 1.0, 0.9, gpu="H100-80GB-SXM"),
        row("b", 1.0, 1.0),
        row("b", 1.02, 0.5, gpu="H100-80GB-SXM"),
        row("c", 2.0, 1.0, quality="vendor-reported"),
        row("c", 1.0, 2.0, gpu="H100-80GB-SXM", quality="vendor-reported"),
        row("d", 2.0, 1.0),
        row("d", 1.0, 2.0, gpu="H100-80GB-SXM"),
    ]
    ranked = rank_pairs(count_once(rows))
    assert (ranked.n, ranked.right) == (2, 1)


def test_the_smallest_run_of_a_stack_calibrates_the_others() -> None:
    """All runs take 1.5 times what is predicted: a third too little before, less than 20 % after one run, whose
    ratio is laid on element-wise work and launches first (residual_time.py); the calibration run is not scored."""
    rows = [row("a", 1.5 * s, 1.0 * s, seq_len=round(512 * s)) for s in (1.0, 2.0, 4.0)]
    rows.append(row("a", 1.0, 3.0, precision="fp32"))  # another stack, with nothing to learn from
    after = calibrated(count_once(rows), "step_time")
    assert len(after) == 2
    assert all(one.error < 0.2 and one.ratio < 1.0 for one in after)


def test_memory_calibration_moves_what_comes_and_goes_more_than_state() -> None:
    """12 GiB of state are counted; a run that reads 18 instead of 16 GiB had 6 GiB of activations, not 4."""

    def estimate(activations: float) -> MemoryEstimate:
        held, total = round(12 * GIB), round((12 + activations) * GIB)
        return MemoryEstimate(
            low_bytes=total,
            expected_bytes=total,
            high_bytes=total,
            peak_allocated_bytes=total,
            visible_bytes=80 * GIB,
            terms={"params": held, "activations": total - held},
        )

    rows = [
        row("a", 18.0, 16.0, metric="peak_mem_gb", unit="GiB allocated", memory=estimate(4.0), seq_len=512),
        row("a", 24.0, 20.0, metric="peak_mem_gb", unit="GiB allocated", memory=estimate(8.0), seq_len=1024),
    ]
    other = row("a", 9.0, 18.0, metric="peak_mem_gb", unit="GiB allocated", memory=estimate(6.0), recompute="full")
    rows.append(other)  # another stack: what recomputes says nothing about what keeps
    (after,) = calibrated(count_once(rows), "memory")
    assert after.error < 0.05  # one factor on the total would give 20 x 18 / 16 = 22.5: 6 % off


@pytest.mark.parametrize(
    ("unit", "reading", "size"),
    [
        ("GiB (torch allocated)", "allocated", GIB),
        ("GiB (torch reserved)", "reserved", GIB),
        ("GiB (process, nvidia-smi)", "process", GIB),
        ("GB (1e9, torch max_memory_allocated/1e9)", "allocated", 10**9),
        ("GB/gpu", "reserved", 10**9),
        ("GiB", "reserved", GIB),
        ("MiB (reserved)", "reserved", 2**20),
    ],
)
def test_units_say_what_was_read(unit: str, reading: str, size: int) -> None:
    assert reading_of(unit, "reserved") == reading
    assert bytes_of_unit(unit) == size


def test_each_reading_is_its_own_part_of_the_estimate() -> None:
    estimate = MemoryEstimate(
        low_bytes=0,
        expected_bytes=100,
        high_bytes=0,
        peak_allocated_bytes=70,
        visible_bytes=0,
        terms={"params": 60, "framework": 10},
    )
    assert [memory_in(estimate, reading) for reading in ("allocated", "reserved", "process")] == [70, 90, 100]


@pytest.mark.parametrize(
    ("note", "steps"),
    [
        ("llama-2-7b/lora.yaml; epochs=4; dataset Alpaca2k (2000 samples), unpadded <=512", 1000),
        ("finetune SQuAD;2 epochs ~88.6k features", 22150),
        ("llm.c baseline 10B tokens 19560 steps", 19560),
    ],
)
def test_a_trainings_steps_follow_from_its_note(note: str, steps: int) -> None:
    assert read_training(row("a", 1.0, 1.0, note=note).measurement, 8).steps == steps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("note", "reason"),
    [("end-to-end", "samples and epochs"), ("87543 samples, 1 epoch; ms-agent dataset tuner table", "lengths")],
)
def test_a_training_of_unknown_length_says_so(note: str, reason: str) -> None:
    with pytest.raises(Gap, match=reason):
        read_training(row("a", 1.0, 1.0, note=note).measurement, 8)  # type: ignore[arg-type]


def test_a_step_faster_than_the_peak_allows_is_suspect() -> None:
    """6 x 6.7e9 x 4096 FLOPs are 166 TFLOP: in 0.1 s five times an A100's 312 TFLOP/s, in 1 s half of it."""
    fast, slow = (row("a", seconds, 1.0, seq_len=4096).trial for seconds in (0.1, 1.0))
    assert fast is not None and slow is not None
    assert "of the dense peak" in impossible(fast)
    assert impossible(slow) == ""


HEADER = "source,model,gpu,metric,value,params,method,precision,n_gpus,micro_batch,seq_len,unit,notes\n"
GOOD = "x,llama-2-7b,A100-80GB-SXM,peak_mem_gb,{value},,lora,bf16,{gpus},{micro},512,GiB,{note}\n"


def test_bad_cells_make_their_row_not_scored_with_line_and_column() -> None:
    text = HEADER + "".join(
        (
            GOOD.format(value="20.5", gpus=1, micro=1, note=""),
            GOOD.format(value="abc", gpus=1, micro=1, note=""),
            GOOD.format(value="", gpus=1, micro=1, note=""),
            GOOD.format(value="-3", gpus=1, micro=1, note=""),
            GOOD.format(value="nan", gpus=1, micro=1, note=""),
            GOOD.format(value="20", gpus="1.5", micro=1, note=""),
            GOOD.format(value="20", gpus=1, micro=0, note=""),
            "x,llama-2-7b\n",
        )
    )
    rows = rows_json(compare(rows_of(text, "t.csv"), EFFICIENCY))
    assert [entry["not_scored"] for entry in rows] == [
        None,
        "line 3, column value: 'abc' is no number",
        "line 4, column value: empty",
        "line 5, column value: '-3' is not a positive number",
        "line 6, column value: 'nan' is not a positive number",
        "line 7, column n_gpus: '1.5' is no whole number",
        "line 8, column micro_batch: '0' is not a positive number",
        "line 9: not 13 cells",
    ]
    assert rows[0]["low"] < rows[0]["predicted"] < rows[0]["high"]
    assert rows[0]["measured"] == 20.5


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"source,model\na,b\n", "ST611"),
        (HEADER.encode(), "ST612"),
        (HEADER.encode() + b"x," + b"a" * 200_000 + b"\n", "ST613"),
    ],
)
def test_a_file_that_is_no_table_is_an_error(tmp_path: Path, content: bytes, code: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_table(file)
    assert caught.value.code == code


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read_table(tmp_path / "none.csv")
    assert caught.value.code == "ST610"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp949"])
def test_encodings_that_spreadsheets_write_are_read(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(HEADER + GOOD.format(value="20", gpus=1, micro=1, note="한글 메모"), encoding=encoding)
    (entry,) = read_table(file)
    assert entry.measurement is not None
    assert entry.measurement.note == "한글 메모"


def test_predictions_are_in_the_rows_own_unit() -> None:
    """The same run in GiB and in GB: 2^30 / 1e9 apart; a micro-batch's time is the step's over its micro-batches."""

    def predicted(**columns: Any) -> float:
        trial = row("a", 1.0, 1.0, **columns).trial
        assert trial is not None
        found = predict(trial)
        assert isinstance(found, Prediction)
        return found.expected

    gib = predicted(metric="peak_mem_gb", unit="GiB (reserved)")
    gb = predicted(metric="peak_mem_gb", unit="GB (reserved)")
    assert gb / gib == pytest.approx(GIB / 1e9)
    step = predicted(global_batch_size=8)
    one = predicted(global_batch_size=8, unit="s per micro-batch iteration")
    assert step / one == pytest.approx(8.0)
    tokens = predicted(metric="tokens_per_s_per_gpu", unit="tok/s/gpu", global_batch_size=8)
    assert tokens == pytest.approx(8 * 512 / step)
