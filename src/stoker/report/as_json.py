"""A report as JSON: SI units in the keys' names, nothing translated, null where nothing was measured."""

from collections.abc import Sequence
from typing import Any

from stoker.core.codec import encode
from stoker.core.comparison import Comparison, RunSummary
from stoker.report.content import loss_points
from stoker.report.measured import best_eval, measure
from stoker.report.summary import label_metrics

REPORT_SCHEMA_VERSION = 1


def report_json(summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """`{"schema_version", "runs": [...]}`, one entry a run in the order given."""
    return {"schema_version": REPORT_SCHEMA_VERSION, "runs": [_run(summary) for summary in summaries]}


def _run(summary: RunSummary) -> dict[str, Any]:
    record, candidate, plan = summary.record, summary.candidate, summary.plan
    best = best_eval(record)
    return {
        "name": summary.name,
        "path": record.path,
        "status": record.status,
        "job": encode(plan.job) if plan else None,
        "gpu": candidate.cluster.device.name if candidate else None,
        "num_gpus": candidate.cluster.num_gpus if candidate else None,
        "run_config": encode(candidate.run_config) if candidate else None,
        "planned_steps": candidate.time.num_steps if candidate else None,
        "header": {k: encode(v) for k, v in record.header.items() if k not in ("plan", "schema_version")},
        "measured": encode(measure(record)),
        "comparisons": [_comparison(c) for c in summary.comparisons],
        "metrics": {
            "best": encode(best.metrics) if best else None,
            "best_step": best.step if best else None,
            "last": encode(record.evals[-1].metrics) if record.evals else None,
            "final": encode(summary.metrics),
            "labels": label_metrics(record),
        },
        "curve": [{"step": int(step), "loss": loss} for step, loss in loss_points(record)],
        "evals": encode(record.evals),
        "events": encode(record.events),
        "data": encode(plan.profile) if plan else None,
        "elsewhere": encode(summary.elsewhere),
        "end": encode(record.end),
        "notes": list(summary.notes),
    }


def _comparison(c: Comparison) -> dict[str, Any]:
    within = None if c.measured is None or c.low is None or c.high is None else c.low <= c.measured <= c.high
    return {**encode(c), "error_frac": c.error_frac, "inside": within}
