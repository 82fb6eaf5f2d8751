"""`plan --explain` as text: each term with its formula, inputs and source; the levers with bytes and price.

Every number comes from a core Explanation; this file only chooses words and units.
"""

from collections.abc import Sequence

from stoker.core.explanation import ExplainedTerm, Explanation, Input, Lever
from stoker.core.human import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_percent,
)
from stoker.core.i18n import _
from stoker.core.units import GB, TFLOP
from stoker.report.plan_text import source_name, term_name
from stoker.report.tables import Column, pad, render_table

_LARGE = 1e4


def explanation_text(explanation: Explanation) -> str:
    """Memory, phases, a step, the whole run, utilisation and levers of one candidate."""
    memory, time = explanation.sources.get("memory"), explanation.sources.get("time")
    parts = [
        _section(_("memory per GPU"), explanation.memory, format_bytes, source_name(memory) if memory else ""),
        _section(_("memory by phase"), explanation.phases, format_bytes, ""),
        _section(_("outside the GPU"), explanation.tiers, format_bytes, ""),
        _section(_("one step"), explanation.step, format_duration, source_name(time) if time else ""),
        utilisation_text(explanation),
        _section(_("whole run"), explanation.total, format_duration, ""),
        levers_text(explanation.levers, _("what would make it smaller:")),
        "\n".join(explanation.notes),
    ]
    return "\n\n".join(part for part in parts if part)


def utilisation_text(explanation: Explanation) -> str:
    """MFU against the dense peak, or why there is none."""
    if explanation.mfu_frac is None:
        return explanation.mfu_note
    return _("MFU {share}: {flops:.4g} TFLOP of the model a step, of {peak:.4g} TFLOP/s ({name})").format(
        share=format_percent(explanation.mfu_frac),
        flops=explanation.model_flops_per_step / TFLOP,
        peak=explanation.peak_flops_per_s / TFLOP,
        name=explanation.peak_name,
    )


def levers_text(levers: Sequence[Lever], title: str) -> str:
    """A table of levers; empty without any."""
    if not levers:
        return ""
    columns = [
        Column(_("change")),
        Column(_("in the job file")),
        Column(_("saves"), "right"),
        Column(_("then needs"), "right"),
        Column(_("fits"), "right"),
        Column(_("GPUs"), "right"),
        Column(_("step"), "right"),
        Column(_("learning curve")),
    ]
    return title + "\n" + render_table(columns, [_lever_row(lever) for lever in levers], indent="  ")


def _lever_row(lever: Lever) -> list[str]:
    return [
        lever.text,
        ", ".join(f"{key}: {value}" for key, value in lever.change.items()),
        format_bytes(lever.saved_bytes),
        format_bytes(lever.expected_bytes),
        _("yes") if lever.fit_probability >= 0.995 else format_percent(lever.fit_probability).replace(".0 %", " %"),
        str(lever.num_gpus),
        f"{format_duration(lever.step_s)} ({format_percent(lever.slower_frac, signed=True)})",
        _("changes") if lever.changes_learning else _("the same"),
    ]


def _section(title: str, terms: Sequence[ExplainedTerm], show: object, source: str) -> str:
    if not terms:
        return ""
    assert callable(show)
    head = f"{title} ({source})" if source else title
    width = max(len(str(show(term.value))) for term in terms)
    lines = [head]
    for term in terms:
        amount = pad(str(show(term.value)), width, "right")
        lines.append(f"  {amount}  {term_name(term.name)} ({source_name(term.source)})")
        if term.formula:
            lines.append(f"  {' ' * width}    = {term.formula}: {term.words}")
        inputs = ", ".join(_input_text(item) for item in term.inputs)
        if inputs:
            lines.append(f"  {' ' * width}    {inputs}")
    return "\n".join(lines)


def _input_text(item: Input) -> str:
    """`N = 8,030,261,248 (parameters)`; a source only where it is weaker than counting."""
    value = _value_text(item)
    source = f"; {source_name(item.source)}" if item.source != "analytic" else ""
    return f"{item.symbol} = {value} ({item.meaning}{source})"


def _value_text(item: Input) -> str:
    if isinstance(item.value, str):
        return item.value
    value = float(item.value)
    if item.unit == "bytes":
        return format_bytes(value)
    if item.unit == "s":
        return format_duration(value) if value >= 1e-3 else _("{value} us").format(value=format_number(value * 1e6, 3))
    if item.unit == "flops":
        return f"{value / TFLOP:.4g} TFLOP"
    if item.unit == "flops_per_s":
        return f"{value / TFLOP:.4g} TFLOP/s"
    if item.unit == "bytes_per_s":
        return f"{value / GB:.4g} GB/s"
    if item.unit in ("bytes_per_param", "bytes_per_token"):
        return f"{value:,.6g} B"
    return format_count(value) if value >= _LARGE or value == int(value) else format_number(value)
