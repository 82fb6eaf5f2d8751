"""A plan as text: the job in three lines, the table of ways to run it, the pick and why, what cannot work.

Every number comes from the plan; this file only chooses what to show and in which words.
"""

import re
from collections.abc import Iterable
from typing import Final

from stoker.core.estimate import CostEstimate, Source
from stoker.core.explanation import Explanation
from stoker.core.human import (
    format_bytes,
    format_count,
    format_duration,
    format_large,
    format_money,
    format_number,
    format_percent,
)
from stoker.core.i18n import N_, _
from stoker.core.plan import Candidate, Plan, Rejection
from stoker.report.tables import Column, render_pairs, render_table

_ROWS: Final = 12
_REJECTIONS: Final = 6
_PLACES: Final = 4
_NUMBER: Final = re.compile(r"\d+([.,]\d+)*")
SOURCE_NAMES: Final[dict[str, str]] = {
    Source.MEASURED: N_("measured"),
    Source.CALIBRATED: N_("calibrated"),
    Source.TRACED: N_("traced"),
    Source.ANALYTIC: N_("analytic"),
    Source.VENDOR_SPEC: N_("vendor spec"),
    Source.ASSUMED: N_("assumed"),
}
TERM_NAMES: Final[dict[str, str]] = {
    "params": N_("parameters"),
    "grads": N_("gradients"),
    "optimizer_states": N_("optimizer states"),
    "masters": N_("fp32 masters"),
    "activations": N_("activations"),
    "logits": N_("logits"),
    "temp_buffers": N_("temporary buffers"),
    "comm_buffers": N_("communication buffers"),
    "framework": N_("framework and context"),
    "fragmentation": N_("allocator slack"),
    "compute": N_("compute"),
    "exposed_comm": N_("communication not hidden"),
    "exposed_transfer": N_("transfers not hidden"),
    "bubble": N_("pipeline bubble"),
    "data_wait": N_("waiting for data"),
    "host_overhead": N_("host overhead"),
    "steps": N_("training steps"),
    "eval": N_("evaluation"),
    "save": N_("saving"),
    "startup": N_("start-up"),
    "boot": N_("machine start"),
    "load": N_("loading weights"),
    "forward": N_("forward"),
    "backward": N_("backward"),
    "optimizer": N_("optimizer"),
    "evaluation": N_("evaluation"),
    "saves": N_("saving checkpoints"),
    "image": N_("image and packages"),
    "download": N_("downloading weights"),
    "compile": N_("compiling"),
    "restarts": N_("restarts after interruptions"),
    "tokenise": N_("tokenising"),
    "warm_up": N_("warming up"),
    "billing_rounding": N_("billing rounding"),
    "dram": N_("host memory"),
    "nvme": N_("flash"),
    "gpu": N_("GPU"),
    "vat": N_("VAT"),
}


def term_name(name: str) -> str:
    """A memory, time or cost term in the user's language; an unknown one as it is written."""
    return _(TERM_NAMES[name]) if name in TERM_NAMES else name.replace("_", " ")


def source_name(source: str) -> str:
    """Where a number comes from, in the user's language."""
    return _(SOURCE_NAMES[source]) if source in SOURCE_NAMES else source


def plan_text(plan: Plan, show_all: bool = False, explanation: Explanation | None = None) -> str:
    """The whole answer of `stoker plan`. `show_all`: every candidate and rejection; `explanation`: every term."""
    from stoker.report.explain_text import explanation_text, levers_text

    parts = [_head(plan), _candidates(plan, show_all), _sentences(plan)]
    picked = plan.picked or (plan.candidates[0] if len(plan.candidates) == 1 else None)
    if picked is not None:
        parts.append(candidate_detail(plan, picked))
    if explanation is not None:
        parts.append(explanation_text(explanation))
        parts.append(_cost_lines(plan, picked))
    elif plan.levers:
        parts.append(levers_text(plan.levers, _("the way out, for {cluster}:").format(cluster=plan.levers_for)))
    parts += [_rejections(plan.rejected, show_all), _notes(plan)]
    return "\n\n".join(part for part in parts if part)


def _head(plan: Plan) -> str:
    job, profile = plan.job, plan.profile
    lengths = profile.lengths
    total, learns = format_large(plan.num_params), format_large(plan.num_trainable_params)
    model = _("{name}: {total} parameters, {learns} of them learn ({method})").format(
        name=plan.model.name, total=total, learns=learns, method=job.tune.method
    )
    if job.task == "image_classification":
        data = _("{num} images ({source})").format(
            num=format_count(profile.num_samples), source=source_name(profile.source)
        )
    else:
        data = _("{num} samples, {mean} tokens on average, 99 % up to {p99}, longest {longest} ({source})").format(
            num=format_count(profile.num_samples),
            mean=format_number(lengths.mean, 3),
            p99=format_count(lengths.quantile(0.99)),
            longest=format_count(lengths.maximum),
            source=source_name(profile.source),
        )
    steps = plan.candidates[0].time.num_steps if plan.candidates else None
    train = _("epochs {epochs}, global batch {batch}, steps {steps}").format(
        epochs=format_number(job.train.epochs, 3) if job.train.epochs % 1 else f"{job.train.epochs:.0f}",
        batch=format_count(job.train.global_batch_size),
        steps=format_count(steps),
    )
    if job.train.seq_len and job.task != "image_classification":
        train += ", " + _("cut at {tokens} tokens").format(tokens=format_count(job.train.seq_len))
    return render_pairs([(_("model"), model), (_("data"), data), (_("training"), train)])


def _candidates(plan: Plan, show_all: bool) -> str:
    if not plan.candidates:
        return _("no candidate: nothing of what was asked for can run this job")
    shown = plan.candidates if show_all else _most_telling(plan)
    on_gpus = any(candidate.cluster.device.kind != "cpu" for candidate in shown)
    columns = [
        Column(""),
        Column("#", "right"),
        Column(_("GPUs") if on_gpus else _("device")),
        Column(_("how")),
        Column(_("memory per GPU") if on_gpus else _("memory"), "right"),
        Column(_("fits"), "right"),
        Column(_("step"), "right"),
        Column(_("total"), "right"),
        Column(_("cost"), "right"),
        Column(_("cheapest offer")),
    ]
    text = render_table(columns, [_row(plan, candidate) for candidate in shown])
    hidden = len(plan.candidates) - len(shown)
    if hidden:
        text += "\n" + _("{num} more ways: --all").format(num=hidden)
    return text


def _most_telling(plan: Plan) -> list[Candidate]:
    """The pick, the runner-up, the best of each GPU, then by rank, at most a screenful; in order of rank."""
    best_of_gpu: dict[str, Candidate] = {}
    for candidate in plan.candidates:
        best_of_gpu.setdefault(candidate.cluster.device.name, candidate)
    wanted = [c for c in (plan.picked, plan.candidate(plan.runner_up)) if c is not None]
    order = [*wanted, *best_of_gpu.values(), *plan.candidates]
    chosen = {c.rank: c for c in order[: _ROWS * 4]}
    kept = list(chosen.values())[:_ROWS]
    return sorted(kept, key=lambda c: c.rank)


def _row(plan: Plan, candidate: Candidate) -> list[str]:
    memory = candidate.memory
    mark = "*" if candidate.rank == plan.pick else ""
    used, visible = memory.expected_bytes, memory.visible_bytes
    return [
        mark,
        str(candidate.rank),
        candidate.cluster.label,
        candidate.run_config.label,
        f"{format_bytes(used)} / {format_bytes(visible)}",
        _fit(memory.fit_probability),
        format_duration(candidate.time.step_s),
        format_duration(candidate.time.total_s),
        _money(plan, candidate.cost.total_usd) if candidate.cost else _("no price"),
        offer_name(candidate.cost) if candidate.cost else "",
    ]


def _fit(probability: float) -> str:
    if probability >= 0.995:
        return _("yes")
    return _("no") if probability < 0.005 else format_percent(probability).replace(".0 %", " %")


def _money(plan: Plan, usd: float) -> str:
    return format_money(usd, plan.job.goal.currency, plan.usd_krw)


def offer_name(cost: CostEstimate) -> str:
    """Provider, instance, region and kind of an offer, as a table shows it."""
    kind = {"on_demand": _("on demand"), "spot": _("spot"), "reserved": _("reserved")}.get(
        cost.price_kind, _("marketplace")
    )
    return " ".join(part for part in (cost.provider, cost.instance, cost.region, kind) if part)


def _sentences(plan: Plan) -> str:
    lines = [plan.summary]
    runner_up = plan.candidate(plan.runner_up)
    if runner_up is not None:
        lines.append(
            _("Runner-up: {cluster}, {why}").format(cluster=runner_up.cluster.label, why=runner_up.why)
            if runner_up.why
            else _("Runner-up: {cluster}").format(cluster=runner_up.cluster.label)
        )
    lines.append(plan.smaller_gpu)
    return "\n".join(line for line in lines if line)


def candidate_detail(plan: Plan, candidate: Candidate) -> str:
    """Memory, time and cost of one candidate, each with its interval and its source."""
    memory, time, cost = candidate.memory, candidate.time, candidate.cost
    pairs = [
        (
            _("memory"),
            _("{value} expected, {low} to {high} ({source}); {allocated} of it allocated; {visible} usable").format(
                value=format_bytes(memory.expected_bytes),
                low=format_bytes(memory.low_bytes),
                high=format_bytes(memory.high_bytes),
                source=source_name(memory.source),
                allocated=format_bytes(memory.peak_allocated_bytes),
                visible=format_bytes(memory.visible_bytes),
            ),
        ),
        (
            _("time"),
            _("{value} expected, {low} to {high} ({source}); {step} a step").format(
                value=format_duration(time.total_s),
                low=format_duration(time.low_s),
                high=format_duration(time.high_s),
                source=source_name(time.source),
                step=format_duration(time.step_s),
            ),
        ),
    ]
    away = {tier: size for tier, size in memory.tiers.items() if tier != "hbm" and size}
    if away:
        where = ", ".join(f"{format_bytes(size)} {term_name(tier)}" for tier, size in away.items())
        pairs.insert(1, (_("outside the GPU"), where))
    if cost is not None:
        text = _("{value} expected, {low} to {high}; {rate} an hour, price of {date} ({source})").format(
            value=_money(plan, cost.total_usd),
            low=_money(plan, cost.low_usd),
            high=_money(plan, cost.high_usd),
            rate=_money(plan, cost.usd_per_hour),
            date=cost.as_of,
            source=cost.source,
        )
        pairs.append((_("cost"), text))
    title = f"#{candidate.rank} {candidate.cluster.label}, {candidate.run_config.label}"
    return title + "\n" + render_pairs(pairs, indent="  ")


def _cost_lines(plan: Plan, candidate: Candidate | None) -> str:
    """Every line of the pick's cost."""
    if candidate is None or candidate.cost is None:
        return ""
    rows = [[term_name(name), _money(plan, usd)] for name, usd in candidate.cost.lines.items() if usd]
    return render_table([Column(_("cost")), Column(_("amount"), "right")], rows) if rows else ""


def _rejections(rejected: Iterable[Rejection], show_all: bool) -> str:
    """What cannot work, one line for each reason, with the clusters that it holds for.

    Reasons that differ in their numbers only are one in the short form, told with the numbers of the first.
    """
    groups: dict[tuple[str, str, str], list[Rejection]] = {}
    for item in rejected:
        reason, fix = (item.reason, item.fix) if show_all else (_NUMBER.sub("#", t) for t in (item.reason, item.fix))
        groups.setdefault((item.code, reason, fix), []).append(item)
    if not groups:
        return ""
    shown = list(groups.values()) if show_all else list(groups.values())[:_REJECTIONS]
    lines = [_("cannot work:"), *(_rejection_line(items, show_all) for items in shown)]
    if len(shown) < len(groups):
        lines.append("  " + _("{num} more reasons: --all").format(num=len(groups) - len(shown)))
    return "\n".join(lines)


def _rejection_line(items: list[Rejection], show_all: bool) -> str:
    places = [f"{item.num_gpus} x {item.gpu}" if item.num_gpus else item.gpu for item in items]
    named = ", ".join(places if show_all else places[:_PLACES])
    if not show_all and len(places) > _PLACES:
        named += " " + _("and {num} more").format(num=len(places) - _PLACES)
    first = items[0]
    tag = f" [{first.code}]" if first.code else ""
    return f"  {named}: {first.reason}{tag}" + (f"\n    -> {first.fix}" if first.fix else "")


def _notes(plan: Plan) -> str:
    notes = list(plan.notes)
    if plan.offers_date and plan.offers_age_days is not None:
        notes.append(
            _("prices of {date}, {days} days old").format(
                date=plan.offers_date, days=format_count(plan.offers_age_days)
            )
        )
    if plan.job.goal.currency == "KRW" and plan.usd_krw:
        notes.append(
            _("1 USD = {rate} KRW ({date})").format(
                rate=format_number(plan.usd_krw, 5), date=plan.usd_krw_date or _("undated")
            )
        )
    return "\n".join(_("note: {text}").format(text=text) for text in notes)
