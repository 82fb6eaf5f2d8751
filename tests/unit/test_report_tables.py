"""Tables, plots and the plan's text: aligned by terminal columns, also in Korean, and honest about what is left out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import candidate, in_won, plan

from stoker.core.estimate import Source
from stoker.core.explanation import ExplainedTerm, Explanation, Input
from stoker.core.i18n import set_language
from stoker.core.plan import Rejection
from stoker.report.document import Bar, Bars, Curves, Series
from stoker.report.plan_text import plan_text
from stoker.report.svg import ticks
from stoker.report.tables import Column, clip, display_width, markdown_table, pad, render_pairs, render_table
from stoker.report.terminal import draw_bars, draw_curves


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("한글", 4), ("é", 1), ("e\u0301", 1), ("Ａ", 2), ("a한", 3), ("\u200b", 0)],
)
def test_width_counts_terminal_columns(text: str, width: int) -> None:
    assert display_width(text) == width


@given(st.text(max_size=30), st.integers(0, 40))
def test_clipping_and_padding_keep_the_width(text: str, width: int) -> None:
    cut = clip(text, width)
    assert display_width(cut) <= max(width, 3)
    assert display_width(pad(cut, width)) >= width


def test_korean_tables_align() -> None:
    columns = [Column("이름"), Column("비용", "right")]
    text = render_table(columns, [["하나", "1원"], ["two", "22,000원"]])
    widths = {display_width(line) for line in text.splitlines()}
    assert len(widths) == 1
    assert text.splitlines()[2].startswith("하나")


def test_empty_columns_are_left_out_and_empty_tables_keep_their_titles() -> None:
    columns = [Column("a"), Column("b")]
    assert render_table(columns, [["x", ""], ["y", ""]]).splitlines()[0] == "a"
    assert render_table(columns, []).splitlines()[0] == "a  b"


def test_markdown_cells_cannot_break_the_table() -> None:
    text = markdown_table([Column("a|b")], [["x|y\nz <b>"]])
    assert text.splitlines() == ["| a\\|b |", "| --- |", "| x\\|y z &lt;b> |"]


def test_pairs_without_a_value_are_left_out() -> None:
    assert render_pairs([("a", "1"), ("long", ""), ("bb", "2")]) == "a   1\nbb  2"


def test_a_curve_falls_from_the_top_left_to_the_bottom_right() -> None:
    series = [Series(name="loss", points=[(0.0, 1.0), (10.0, 0.0)])]
    curves = Curves(title="t", x_label="step", series=series, format_y=lambda v: f"{v:.1f}")
    for encoding in ("utf-8", "ascii"):
        lines = draw_curves(curves, encoding=encoding, width=20, height=5).splitlines()
        body = [line.split("|", 1)[1] for line in lines[1:6]]
        assert body[0].strip() and body[0][0] != " "
        assert len(body[-1].rstrip()) == 20
        assert lines[1].strip().startswith("1.0") and lines[5].strip().startswith("0.0")


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=40))
def test_any_points_can_be_drawn(points: list[tuple[float, float]]) -> None:
    curves = Curves(title="t", x_label="x", series=[Series(name="a", points=points)], format_y=str)
    assert draw_curves(curves, encoding="utf-8", width=16, height=4)


def test_bars_are_proportional() -> None:
    bars = Bars(title="t", bars=[Bar(name="a", value=2.0, text="2"), Bar(name="한글", value=1.0, text="1")])
    lines = draw_bars(bars, encoding="ascii", width=10).splitlines()
    assert [line.count("#") for line in lines] == [0, 10, 5]


@pytest.mark.parametrize(("reference", "places"), [(None, [0, 0]), (1.5, [8, 8]), (4.0, [10, 10])])
def test_the_reference_stands_in_one_column(reference: float | None, places: list[int]) -> None:
    both = [Bar(name="a", value=2.0, text=""), Bar(name="b", value=1.0, text="")]
    lines = draw_bars(Bars(title="t", bars=both, reference=reference), encoding="ascii", width=10).splitlines()[1:]
    assert [line.split("|", 1)[1].find("|") + 1 for line in lines] == places


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e9))
def test_axis_ticks_are_few_and_inside(low: float, span: float) -> None:
    high = low + span
    marks = ticks(low, high)
    assert len(marks) <= 7
    assert all(low - span * 0.01 <= mark <= high + span * 0.01 for mark in marks)


def explained() -> Explanation:
    """One term of memory: 1,000 tokens of 2 MB each."""
    tokens = Input(symbol="T", meaning="tokens", value=1000, unit="count", source=Source.ASSUMED)
    term = ExplainedTerm(
        name="activations", value=2e9, formula="T * c", words="kept", inputs=(tokens,), source=Source.ASSUMED
    )
    return Explanation(rank=1, memory=(term,), phases=(), step=(), total=())


def test_the_plan_names_pick_runner_up_and_rejections() -> None:
    text = plan_text(plan())
    starred = [line for line in text.splitlines() if line.startswith("*")]
    assert len(starred) == 1 and "1 x L4" in starred[0]
    for part in (
        "Take 1 x L4.",
        "Runner-up: 2 x L4",
        "smaller GPU",
        "1 x T4: no bf16 [ST310]",
        "60 days old",
        "no price",
    ):
        assert part in text
    assert "activations" not in text
    assert "activations" in plan_text(plan(), explanation=explained())


def test_a_long_plan_shows_the_telling_rows_and_says_how_many_more() -> None:
    many = [candidate(rank, gpus=rank, name="L4") for rank in range(1, 30)]
    many.append(candidate(30, name="H200"))
    text = plan_text(plan(candidates=tuple(many)))
    rows = [line for line in text.splitlines() if " x " in line and "mb64x1" in line and not line.startswith("#")]
    assert len(rows) == 12
    assert "1 x H200" in text  # the best of each GPU is never hidden
    assert "18 more ways: --all" in text
    assert "more ways" not in plan_text(plan(candidates=tuple(many)), show_all=True)


def test_a_plan_where_nothing_fits_still_answers() -> None:
    lone = plan(candidates=(candidate(fits=False),), pick=None, runner_up=None, summary="Nothing fits.")
    text = plan_text(lone)
    assert "Nothing fits." in text
    assert "60.0 GB / 23.6 GB" in text
    none = plan_text(plan(candidates=(), pick=None, runner_up=None))
    assert "no candidate" in none


def test_a_plan_for_a_cpu_speaks_of_no_gpu() -> None:
    one = candidate()
    cpu = replace(one.cluster.device, kind="cpu", name="a CPU")
    here = plan(candidates=(replace(one, cluster=replace(one.cluster, device=cpu)),), rejected=(), smaller_gpu="")
    assert "GPU" not in plan_text(replace(here, summary="", runner_up=None)).replace("a CPU", "")


def test_many_reasons_are_grouped_and_cut() -> None:
    letters = "abcdefgh"
    rejected = [Rejection(gpu=f"G{i}", num_gpus=1, reason=f"reason {letters[i % 8]}", fix="fix") for i in range(32)]
    text = plan_text(plan(rejected=tuple(rejected)))
    assert text.count("reason ") == 6
    assert "2 more reasons: --all" in text
    assert plan_text(plan(rejected=tuple(rejected)), show_all=True).count("reason ") == 8


def test_reasons_that_differ_in_numbers_only_are_told_once() -> None:
    rejected = [
        Rejection(gpu="L4", num_gpus=n, reason=f"{n} does not divide 64", fix=f"use {n + 1}") for n in range(3, 9)
    ]
    text = plan_text(plan(rejected=tuple(rejected)))
    assert "3 x L4, 4 x L4, 5 x L4, 6 x L4 and 2 more: 3 does not divide 64" in text
    assert text.count("does not divide") == 1
    assert plan_text(plan(rejected=tuple(rejected)), show_all=True).count("does not divide") == 6


def test_the_korean_plan_is_korean_and_fits_cp949() -> None:
    set_language("ko")
    text = plan_text(in_won(plan()), explanation=explained())
    assert "700원" in text
    assert "활성값" in text
    assert "GPU당 메모리" in text
    assert text.encode("cp949")
