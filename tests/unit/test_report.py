"""Reports: numbers come from the record, every form says the same, and odd records (running, killed, without
sensors, NaN, of foreign words) render without a crash, a script or a leak."""

import json
import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_samples import (
    ELSEWHERE,
    END,
    NUM_STEPS,
    evaluation,
    finished_lines,
    in_won,
    plan,
    step,
    write_record,
)

from stoker.core.comparison import RunSummary
from stoker.core.i18n import set_language
from stoker.core.record import EventLine
from stoker.core.record_io import read_record
from stoker.report.as_json import report_json
from stoker.report.content import one_run
from stoker.report.document import Bar, Bars, Curves, Document, Section, Series, Table
from stoker.report.html import as_html
from stoker.report.markdown import as_markdown
from stoker.report.measured import measure
from stoker.report.side_by_side import several_runs, unique_names
from stoker.report.summary import summarise
from stoker.report.tables import Column
from stoker.report.terminal import as_text

HOSTILE = "<script>alert(1)</script>&\"'|`$x^2$ ${jndi} 한글 \u202e"


@pytest.fixture
def summary(tmp_path: Path) -> RunSummary:
    return summarise(read_record(write_record(tmp_path / "first")), elsewhere=ELSEWHERE)


def comparison(summary: RunSummary, name: str) -> tuple[float | None, float | None]:
    found = next(c for c in summary.comparisons if c.name == name)
    return found.predicted, found.measured


def test_measured_values_come_from_the_lines(summary: RunSummary) -> None:
    m = measure(summary.record)
    assert m.last_step == NUM_STEPS
    assert m.elapsed_s == 28.0
    assert m.step_s == 0.25  # the first line (0.9 s: warm-up) does not count
    assert m.peak_reserved_bytes == 5_800_000_000
    assert m.cost_usd == pytest.approx(0.5)
    assert m.padding_frac == pytest.approx(0.2)
    assert m.data_wait_frac == pytest.approx(0.04)
    assert m.samples_per_s == pytest.approx(6400 / (10 * 0.9 + 90 * 0.25))


@pytest.mark.parametrize(("allocated", "advised"), [(4_500_000_000, True), (4_800_000_000, False)])
def test_case_8_reserved_memory_that_nothing_used_is_told_above_a_fifth(
    allocated: int, advised: bool, tmp_path: Path
) -> None:
    """Of 5.8 GB reserved 1.3 (22 %) or 1.0 (17 %) were never allocated at once."""
    lines = [("step", step(i, 0.5, allocated_bytes=allocated, reserved_bytes=5_800_000_000)) for i in (1, 2)]
    notes = summarise(read_record(write_record(tmp_path / "r", lines, end={"status": "finished"}))).notes
    assert any("1.30 GB (22.4 %" in note and "expandable_segments" in note for note in notes) == advised


def test_predictions_stand_beside_what_they_predict(summary: RunSummary) -> None:
    assert comparison(summary, "peak_allocated") == (5_100_000_000, 5_000_000_000)
    assert comparison(summary, "peak_reserved") == (5_500_000_000, 5_800_000_000)  # without the context
    assert comparison(summary, "step") == (0.2, 0.25)
    assert comparison(summary, "total") == (22.0, 28.0)
    assert comparison(summary, "cost") == (0.5, pytest.approx(0.5))


def test_on_a_cpu_the_process_is_compared(tmp_path: Path) -> None:
    """There is no allocator to ask: the record's allocated bytes are the process's, the prediction is the whole."""
    chosen = plan().candidates[0]
    device = replace(chosen.cluster.device, kind="cpu", name="cpu")
    here = plan(candidates=(replace(chosen, cluster=replace(chosen.cluster, device=device)),), runner_up=None)
    lines = [("step", step(i, 0.5, reserved_bytes=None)) for i in (1, 2)]
    end = {"status": "finished", "elapsed_s": 9.0, "peak_allocated_bytes": 6_600_000_000}
    summary = summarise(read_record(write_record(tmp_path / "r", lines, end=end, of_plan=here)))
    assert comparison(summary, "peak_process") == (6_000_000_000, 6_600_000_000)  # evaluation was the peak
    assert {c.name for c in summary.comparisons}.isdisjoint({"peak_allocated", "peak_reserved"})


def counted(tmp_path: Path, model_flops: float) -> RunSummary:
    """A run of steps of 0.25 s (planned: 0.2 s) on an L4 of 121 TFLOP/s, whose model takes `model_flops` a step."""
    chosen = plan().candidates[0]
    here = plan(candidates=(replace(chosen, time=replace(chosen.time, model_flops=model_flops)),), runner_up=None)
    lines = [("step", step(i, 0.5, step_s=0.25)) for i in (1, 2)]
    return summarise(read_record(write_record(tmp_path / "r", lines, end={"status": "finished"}, of_plan=here)))


def test_case_37_mfu_is_of_the_dense_peak_of_what_ran(tmp_path: Path) -> None:
    predicted, measured = comparison(counted(tmp_path, 0.1 * 121e12), "mfu")
    assert (predicted, measured) == (pytest.approx(0.5), pytest.approx(0.4))


def test_case_37_more_than_the_peak_is_a_note_and_no_figure(tmp_path: Path) -> None:
    summary = counted(tmp_path, 0.3 * 121e12)
    assert [c for c in summary.comparisons if c.name == "mfu"] == []
    assert any("no MFU" in note and "120%" in note for note in summary.notes)


def test_the_text_holds_every_part(summary: RunSummary) -> None:
    text = as_text(one_run(summary))
    for part in (
        "finished",
        "100 of 100",
        "-20.0 %",
        "0.6100",
        "abuse",
        "3 rows were dropped",
        "ST110",
        "H100-SXM5-80GB",
    ):
        assert part in text
    assert "\u2800" not in text  # an empty braille cell is a space


@pytest.mark.parametrize("encoding", ["cp949", "ascii", None])
def test_charts_degrade_to_what_the_console_has(summary: RunSummary, encoding: str | None) -> None:
    text = as_text(one_run(summary), encoding=encoding)
    assert text.encode(encoding or "ascii")
    assert "####" in text
    set_language("ko")
    korean = as_text(one_run(summary), encoding="cp949")
    assert korean.encode("cp949")
    assert "예측과 측정" in korean


def test_markdown_tables_stay_whole(tmp_path: Path) -> None:
    lines = [*finished_lines(), ("event", EventLine(name="x", message=HOSTILE, elapsed_s=1.0))]
    lines.append(("eval", replace(evaluation(60, 0.9, True), labels={HOSTILE: {"f1": 0.5}})))
    text = as_markdown(one_run(summarise(read_record(write_record(tmp_path / "a|b", lines)))))
    assert "<script" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block
    assert text.count("```") % 2 == 0


class _Checker(HTMLParser):
    """Collects tags and addresses; void elements need no end."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [
            v or "" for k, v in attrs if k in ("src", "href", "srcset", "data", "action") or k[:2] == "on"
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_html(text: str) -> _Checker:
    checker = _Checker()
    checker.feed(text)
    assert checker.open == []
    return checker


def test_html_is_self_contained_and_escaped(tmp_path: Path) -> None:
    """Hostile words in every place that a user or a data file can fill: none becomes markup, nothing is fetched."""
    lines = [*finished_lines(), ("event", EventLine(name="x", message=HOSTILE, elapsed_s=1.0, code=HOSTILE))]
    lines.append(("eval", replace(evaluation(60, 0.9, True), labels={HOSTILE: {HOSTILE: 0.5}})))
    end = {**END, "reason": HOSTILE}
    hostile = plan(
        job=replace(plan().job, data=replace(plan().job.data, train=HOSTILE)),
        model=replace(plan().model, name=HOSTILE),
        profile=replace(plan().profile, label_counts={HOSTILE: 3}),
    )
    header = {"versions": {HOSTILE: HOSTILE}, "hardware": {"name": HOSTILE}}
    record = read_record(write_record(tmp_path / "x", lines, end=end, of_plan=hostile, header=header))
    summary = summarise(record, elsewhere=ELSEWHERE, notes=[HOSTILE])
    for document in (one_run(summary), several_runs([summary, summary])):
        text = as_html(document)
        checker = check_html(text)
        assert "script" not in checker.tags
        assert checker.addresses == []
        assert "url(" not in text and "@import" not in text and "http:" not in text and "https:" not in text
        assert "default-src &#x27;none&#x27;" in text
        for picture in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
            ElementTree.fromstring(picture)
    assert "&lt;script&gt;" in as_html(one_run(summary))


def test_the_html_has_both_colour_schemes_and_its_language(summary: RunSummary) -> None:
    set_language("ko")
    text = as_html(one_run(summary))
    assert '<html lang="ko">' in text
    assert "prefers-color-scheme:dark" in text
    assert "예측과 측정" in text


def test_json_is_strict_and_untranslated(summary: RunSummary) -> None:
    set_language("ko")
    data = json.loads(json.dumps(report_json([summary]), allow_nan=False))
    run = data["runs"][0]
    assert run["status"] == "finished"
    assert run["num_gpus"] == 1
    assert {c["name"]: c["inside"] for c in run["comparisons"]} == {
        "peak_allocated": None,
        "peak_reserved": True,
        "step": True,
        "total": True,
        "cost": True,
    }
    assert run["metrics"]["best"]["f1_macro"] == 0.61
    assert run["metrics"]["labels"]["abuse"]["threshold"] == 0.41
    assert run["metrics"]["final"]["test_f1_macro"] == 0.6
    assert len(run["curve"]) == 10
    assert run["elsewhere"][1]["cost"]["provider"] == "lambda"


def test_a_running_record_compares_what_is_known(tmp_path: Path) -> None:
    summary = summarise(read_record(write_record(tmp_path / "r", finished_lines()[:5], end=None)))
    assert summary.record.status == "running"
    assert comparison(summary, "total") == (22.0, None)
    assert comparison(summary, "step")[1] == 0.25
    text = as_text(one_run(summary))
    assert "50 of 100 (50.0 %)" in text
    assert "no end" in text
    assert json.dumps(report_json([summary]), allow_nan=False)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_did_not_finish_says_why(tmp_path: Path, status: str) -> None:
    end = {"status": status, "elapsed_s": 13.0, "reason": "SIGTERM"}
    summary = summarise(read_record(write_record(tmp_path / "r", finished_lines()[:5], end=end)))
    assert f"{status}: SIGTERM" in as_text(one_run(summary))
    assert comparison(summary, "total")[1] is None


def test_a_record_without_steps_renders(tmp_path: Path) -> None:
    summary = summarise(read_record(write_record(tmp_path / "r", [], end=None)))
    for document in (one_run(summary), several_runs([summary, summary])):
        assert "no step was recorded" in as_text(document)
        check_html(as_html(document))
        assert as_markdown(document)


def test_missing_sensors_are_told_not_zero(tmp_path: Path) -> None:
    blind = [("step", step(i, 0.5, allocated_bytes=None, reserved_bytes=None, cost_usd=None)) for i in (1, 2, 3)]
    end = {"status": "finished", "elapsed_s": 9.0, "peak_allocated_bytes": None, "peak_reserved_bytes": 0}
    summary = summarise(read_record(write_record(tmp_path / "r", blind, end=end)))
    assert comparison(summary, "peak_reserved")[1] is None
    text = as_text(one_run(summary))
    assert "no memory sensor" in text
    assert "0 B" not in text


def test_a_loss_that_is_no_number_is_counted_and_left_out(tmp_path: Path) -> None:
    bad = [("step", step(i, math.nan if i == 2 else 0.5)) for i in (1, 2, 3)]
    bad.append(("eval", replace(evaluation(3, 0.5, True), metrics={"f1_macro": math.nan, "loss": math.inf})))
    summary = summarise(read_record(write_record(tmp_path / "r", bad)))
    text = as_text(one_run(summary))
    assert "1 logged steps had a loss that is no number" in text
    check_html(as_html(one_run(summary)))
    assert [p["step"] for p in report_json([summary])["runs"][0]["curve"]] == [1, 3]
    assert json.dumps(report_json([summary]), allow_nan=False)


def test_a_single_step_can_be_drawn(tmp_path: Path) -> None:
    summary = summarise(read_record(write_record(tmp_path / "r", [("step", step(1, 0.5))])))
    assert measure(summary.record).step_s == 0.9
    assert as_text(one_run(summary))
    assert "<circle" in as_html(one_run(summary))


def test_an_unreadable_plan_leaves_the_measurements(tmp_path: Path) -> None:
    for broken in (None, {}, {"job": 5}, [1], {"schema_version": 99}):
        record = read_record(write_record(tmp_path / "r", header={"plan": broken}))
        summary = summarise(record)
        assert summary.comparisons == ()
        assert "no plan" in as_text(one_run(summary))
        assert as_text(several_runs([summary, summary]))


def test_won_follows_the_job(tmp_path: Path) -> None:
    summary = summarise(read_record(write_record(tmp_path / "r", of_plan=in_won(plan()))), elsewhere=ELSEWHERE)
    assert "KRW 700" in as_text(one_run(summary))


def test_runs_side_by_side(tmp_path: Path) -> None:
    first = summarise(read_record(write_record(tmp_path / "one" / "run")))
    slow = [("step", step(i, 0.9, step_s=0.5)) for i in (10, 20)]
    second = summarise(read_record(write_record(tmp_path / "two" / "run", slow, end=None)))
    text = as_text(several_runs([first, second]))
    assert "run (1)" in text and "run (2)" in text
    assert "running, or killed" in text
    assert "-60.0 % !" in text  # 0.2 s predicted, 0.5 s measured, above the interval
    assert len(report_json([first, second])["runs"]) == 2
    assert as_html(several_runs([first, second])).count("<polyline") >= 2


def test_side_by_side_compares_only_what_two_have(tmp_path: Path) -> None:
    """A chart of one bar compares nothing; a quantity that no run has takes no column."""
    first = summarise(read_record(write_record(tmp_path / "one")))
    bare = [("step", step(i, 0.9, cost_usd=None)) for i in (10, 20)]
    others = [summarise(read_record(write_record(tmp_path / name, bare, end=None))) for name in ("two", "three")]
    charts = next(s for s in several_runs([first, *others]).sections if s.bars).bars
    assert charts and all(len(chart.bars) > 1 for chart in charts)
    overview = as_text(several_runs(others)).split("curves")[0]
    assert "cost" not in overview and "last training loss" in overview


def test_the_exact_prediction_is_marked_in_every_chart(summary: RunSummary) -> None:
    bars = next(bars for section in one_run(summary).sections for bars in section.bars if bars.reference)
    assert bars.reference == 1.0 and bars.longest >= 1.0
    assert 'class="mark"' in as_html(one_run(summary))
    rows = [
        line
        for line in as_text(one_run(summary)).splitlines()
        if line.strip().startswith("peak memory") and "█" in line
    ]
    assert rows and len({line.index("|", line.index("|") + 1) for line in rows}) == 1


@pytest.mark.parametrize(("value", "place"), [(0.5, 0.5), (0.95, 1.0), (1.2, 1.2)])
def test_words_behind_a_bar_do_not_cross_the_reference(value: float, place: float) -> None:
    bar = Bar(name="a", value=value, text="-5 %")
    assert Bars(title="t", bars=[bar], reference=1.0).text_place(bar, 0.1) == place


def test_a_font_installed_after_matplotlibs_list_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = pytest.importorskip("matplotlib.font_manager")
    from stoker.report import png

    old = [entry for entry in manager.fontManager.ttflist if entry.name == "DejaVu Sans"]
    added: list[str] = []

    def add(file: str) -> None:
        added.append(file)
        old.append(replace(old[0], name="NanumGothic"))

    monkeypatch.setattr(manager.fontManager, "ttflist", old)
    monkeypatch.setattr(manager.fontManager, "addfont", add)
    monkeypatch.setattr(manager, "findSystemFonts", lambda: ["/f/DejaVuSans.ttf", "/f/NanumGothic-Bold.ttf"])
    assert png.korean_font() == "NanumGothic"
    assert added == ["/f/NanumGothic-Bold.ttf"]


def test_names_that_stand_twice_are_numbered() -> None:
    assert unique_names(["a", "b", "a"]) == ["a (1)", "b", "a (2)"]


def test_a_long_run_stays_a_small_page(tmp_path: Path) -> None:
    """50,000 logged steps: the spike survives the thinning and the file stays below 200 kB."""
    points = [(float(i), 1.0 + (9.0 if i == 33_333 else 0.0)) for i in range(50_000)]
    chart = Curves(title="t", x_label="x", series=[Series(name="s", points=points)], format_y=str)
    text = as_html(Document(title="t", sections=[Section(title="s", curves=[chart])]))
    assert len(text) < 200_000
    heights = [float(y) for y in re.findall(r",(\d+\.\d)", text[text.index("<polyline") :])]
    assert min(heights) == pytest.approx(14.0)


def test_empty_sections_are_left_out() -> None:
    document = Document(
        title="t",
        sections=[
            Section(title="nothing", pairs=[("a", "")], tables=[Table(columns=[Column("x")], rows=[])]),
            Section(title="something", lines=["x"]),
        ],
    )
    assert [section.title for section in document.shown] == ["something"]


def test_the_charts_become_a_png(summary: RunSummary, tmp_path: Path) -> None:
    """Drawn without a warning (pytest makes one an error), also with Korean words and no Korean font."""
    pytest.importorskip("matplotlib")
    from stoker.report import png

    for document in (one_run(summary), several_runs([summary, summary]), Document(title=HOSTILE, sections=[])):
        assert png.as_png(document).startswith(b"\x89PNG\r\n")
    set_language("ko")
    korean_plan = plan(profile=replace(plan().profile, label_counts={"욕설": 3}))
    korean = summarise(read_record(write_record(tmp_path / "한글", of_plan=korean_plan)))
    assert png.as_png(one_run(korean)).startswith(b"\x89PNG\r\n")


def test_a_png_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.core.errors import EnvironmentProblem
    from stoker.report import png

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvironmentProblem, match="stoker\\[plots\\]"):
        png.require_matplotlib()
