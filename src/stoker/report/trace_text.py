"""`plan --trace` as text: each memory term, analytic beside traced."""

from collections.abc import Sequence

from stoker.core.estimate import MemoryEstimate
from stoker.core.human import format_bytes, format_percent
from stoker.core.i18n import _
from stoker.report.plan_text import term_name
from stoker.report.tables import Column, render_table


def trace_text(analytic: MemoryEstimate, traced: MemoryEstimate | None, gap: str, notes: Sequence[str]) -> str:
    """A table of terms, or why there is no trace and the analytic estimate stands."""
    if traced is None:
        return _("no trace, so the analytic estimate stands: {reason}").format(reason=gap)
    names = [name for name in {**analytic.terms, **traced.terms} if analytic.terms.get(name) or traced.terms.get(name)]
    rows = [
        (term_name(name), format_bytes(analytic.terms.get(name, 0)), format_bytes(traced.terms.get(name, 0)))
        for name in names
    ]
    for title, attribute in ((_("peak allocated"), "peak_allocated_bytes"), (_("expected"), "expected_bytes")):
        rows.append((title, format_bytes(getattr(analytic, attribute)), format_bytes(getattr(traced, attribute))))
    difference = traced.peak_allocated_bytes / analytic.peak_allocated_bytes - 1.0
    table = render_table(
        [Column(_("memory per GPU")), Column(_("analytic"), "right"), Column(_("traced"), "right")], rows
    )
    told = _("the traced peak is {share} of the analytic one; a trace has the loss among activations and temporaries")
    return "\n".join((table, told.format(share=format_percent(1.0 + difference)), *notes))
