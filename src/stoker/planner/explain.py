"""Reasons in one sentence each: why the pick, what separates the others from it, and what a smaller GPU would need.

Every statement compares two estimates of this plan; nothing here is a rule of thumb.
"""

from collections.abc import Sequence
from dataclasses import replace

from stoker.core.hardware import Cluster, Device
from stoker.core.human import format_duration, format_money
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import Candidate
from stoker.core.units import GB
from stoker.planner.constraints import host_room
from stoker.planner.evaluate import FIT_PROBABILITY, Evaluator
from stoker.planner.rank import is_sure

_SHARDS = (2, 4, 8, 16, 32, 64)


def with_reasons(job: Job, candidates: Sequence[Candidate], pick: Candidate | None) -> tuple[Candidate, ...]:
    """`candidates`, each with its sentence."""
    return tuple(replace(candidate, why=_why(job, candidate, pick, candidates)) for candidate in candidates)


def _why(job: Job, candidate: Candidate, pick: Candidate | None, candidates: Sequence[Candidate]) -> str:
    if not candidate.fits:
        return _("does not fit: {need:.1f} GB of {visible:.1f} GB").format(
            need=candidate.memory.expected_bytes / GB, visible=candidate.memory.visible_bytes / GB
        )
    if pick is None or candidate.rank == pick.rank:
        return _pick_reason(job, candidate, candidates)
    parts = []
    if candidate.memory.fit_probability < FIT_PROBABILITY:
        parts.append(_("may not fit ({percent:.0f} %)").format(percent=100.0 * candidate.memory.fit_probability))
    if candidate.cost and pick.cost and pick.cost.total_usd > 0:
        dearer = candidate.cost.total_usd / pick.cost.total_usd
        parts.append(_ratio(dearer, _("dearer"), _("cheaper")) or _("the same cost"))
    elif pick.cost:
        parts.append(_("no price known"))
    slower = _ratio(candidate.time.total_s / pick.time.total_s, _("slower"), _("faster"))
    parts.append(slower or _("the same time"))
    whole = _("{facts} than the pick") if slower else _("{facts} as the pick")
    return whole.format(facts=", ".join(parts))


def _ratio(ratio: float, above: str, below: str) -> str:
    """`1.23 times dearer`; empty where it would say 1.00 times."""
    value, word = (ratio, above) if ratio >= 1.0 else (1.0 / max(ratio, 1e-9), below)
    return _("{value:.2f} times {word}").format(value=value, word=word) if value >= 1.005 else ""


def _pick_reason(job: Job, candidate: Candidate, candidates: Sequence[Candidate]) -> str:
    goal = _("cheapest") if job.goal.minimise == "cost" and candidate.cost else _("fastest")
    limits = [
        text
        for text, given in (
            (_("within the deadline"), job.goal.deadline_hours),
            (_("within the budget"), job.goal.budget_usd),
        )
        if given is not None
    ]
    only = sum(other.fits for other in candidates) == 1
    head = _("the only one that fits") if only else _("the {goal} that fits").format(goal=goal)
    return ", ".join([head, *limits]) + "; " + _bottleneck(candidate)


def _bottleneck(candidate: Candidate) -> str:
    """What most of a step is, in words."""
    terms = candidate.time.step_terms
    largest = max(terms, key=lambda name: terms[name])
    share = 100.0 * terms[largest] / candidate.time.step_s if candidate.time.step_s > 0 else 0.0
    words = {
        "compute": _("the GPU computes {share:.0f} % of a step"),
        "optimizer": _("the optimizer takes {share:.0f} % of a step"),
        "exposed_comm": _("communication takes {share:.0f} % of a step"),
        "host_overhead": _("launching kernels takes {share:.0f} % of a step, so a faster GPU would not help"),
        "exposed_transfer": _("moving state between memory tiers takes {share:.0f} % of a step"),
        "bubble": _("the pipeline idles {share:.0f} % of a step"),
        "data_wait": _("waiting for data takes {share:.0f} % of a step"),
    }
    if candidate.cluster.device.kind == "cpu" and largest == "compute":
        return _("the CPU computes {share:.0f} % of a step").format(share=share)
    return words.get(largest, largest).format(share=share)


def summarise(job: Job, pick: Candidate | None, candidates: Sequence[Candidate], usd_krw: float | None) -> str:
    """The pick in one sentence; without one, that nothing fits, or how near the goal comes what does."""
    fitting = [c for c in candidates if c.fits and host_room(job, c) is None]
    if pick is None and fitting:
        return _beyond_the_goal(job, fitting, usd_krw)
    if pick is None:
        return _("Nothing fits within what was asked; see what cannot work, and how to change that.")
    facts = [pick.run_config.label, format_duration(pick.time.total_s)]
    if pick.cost:
        facts.append(format_money(pick.cost.total_usd, job.goal.currency, usd_krw))
    return _("Pick: {cluster} ({facts}), {why}.").format(
        cluster=pick.cluster.label, facts=", ".join(facts), why=pick.why
    )


def _beyond_the_goal(job: Job, fitting: Sequence[Candidate], usd_krw: float | None) -> str:
    fastest = min(fitting, key=lambda c: c.time.total_s)
    text = _("Some fit, none meets the goal: the fastest is {cluster} with {time}").format(
        cluster=fastest.cluster.label, time=format_duration(fastest.time.total_s)
    )
    priced = [(c.cost.total_usd, c) for c in fitting if c.cost is not None]
    if priced:
        usd, cheapest = min(priced, key=lambda pair: pair[0])
        text += _(", the cheapest {cluster} with {money}").format(
            cluster=cheapest.cluster.label, money=format_money(usd, job.goal.currency, usd_krw)
        )
    return text + "."


def order_note(job: Job, candidates: Sequence[Candidate]) -> str:
    """Why the cost column does not ascend, where stale prices were ranked by the top of their range."""
    sure = [c for c in candidates if c.cost is not None and is_sure(c)]
    costs = [round(c.cost.total_usd, 2) for c in sure if c.cost is not None]
    if job.goal.minimise != "cost" or costs == sorted(costs) or not any(c.cost and c.cost.is_stale for c in sure):
        return ""
    return _("stale prices are ranked at the top of their range, so the order is not that of the cost column")


def scaling_note(candidates: Sequence[Candidate], pick: Candidate | None) -> str:
    """Whether more GPUs pay: the pick's GPU alone beside its largest number. Empty where there is no such pair."""
    if pick is None:
        return ""
    same = [c for c in candidates if c.cluster.device.name == pick.cluster.device.name and c.fits]
    single = next((c for c in same if c.cluster.num_gpus == 1), None)
    many = max(same, key=lambda c: c.cluster.num_gpus, default=None)
    if single is None or many is None or many.cluster.num_gpus == 1:
        return ""
    sooner = single.time.total_s / many.time.total_s
    steps = single.time.step_s / many.time.step_s
    if sooner >= 1.0:
        text = _("{many} finish {sooner:.1f} times sooner than one (a step: {steps:.1f} times)").format(
            many=many.cluster.label, sooner=sooner, steps=steps
        )
    else:
        text = _("{many} take {longer:.1f} times as long as one").format(many=many.cluster.label, longer=1.0 / sooner)
    if single.cost and many.cost and single.cost.total_usd > 0:
        text += _(" and cost {dearer:.1f} times as much").format(dearer=many.cost.total_usd / single.cost.total_usd)
    return text if sooner >= 1.0 else text + _(": more GPUs lose here")


def stale_note(pick: Candidate | None) -> str:
    """A warning where the pick's price is too old to trust."""
    if pick is None or pick.cost is None or not pick.cost.is_stale:
        return ""
    return _("the price of the pick was seen on {date}: ask for today's before renting").format(
        date=pick.cost.as_of or "?"
    )


def smaller_gpu(evaluator: Evaluator, pick: Candidate | None, clusters: Sequence[Cluster]) -> str:
    """What a GPU with less memory than the pick's would need; the next smaller one of those considered, if any."""
    if pick is None or pick.cluster.device.kind == "cpu":
        return ""
    devices = {cluster.device.name: cluster.device for cluster in clusters}.values()
    # two 80 GB products differ by their driver's share: smaller means a class smaller
    limit = 0.9 * pick.memory.visible_bytes
    smaller = [d for d in devices if d.visible_bytes < limit and d.kind == pick.cluster.device.kind]
    if smaller:
        device = max(smaller, key=lambda d: d.visible_bytes)
        return _("A smaller GPU: {text}.").format(text=what_would_fit(evaluator, device))
    least = evaluator.least_memory(replace(pick.cluster, num_gpus=1, nodes=1))
    if least is None:
        return ""
    config, memory = least
    return _("A smaller GPU would need {high:.1f} GB at least ({config}).").format(
        high=memory.high_bytes / GB, config=config.label
    )


def what_would_fit(evaluator: Evaluator, device: Device) -> str:
    """The first of: one GPU without pins, sharded over more GPUs, LoRA instead of full tuning; else what is missing."""
    evaluator = _without_pins(evaluator)
    single = Cluster(device=device, num_gpus=1)
    least = evaluator.least_memory(single)
    if least is not None and least[1].fit_probability >= FIT_PROBABILITY:
        return _("one {gpu} does with {config}, {need:.1f} GB of {visible:.1f} GB").format(
            gpu=device.name,
            config=least[0].label,
            need=least[1].expected_bytes / GB,
            visible=device.visible_bytes / GB,
        )
    options = [text for text in (_sharded(evaluator, device), _with_lora(evaluator, device)) if text]
    if options:
        return _(" or ").join(options)
    need = least[1].high_bytes / GB if least is not None else 0.0
    return _("{gpu} shows {visible:.1f} GB and {need:.1f} GB are needed at least").format(
        gpu=device.name, visible=device.visible_bytes / GB, need=need
    )


def _without_pins(evaluator: Evaluator) -> Evaluator:
    """The same job free to recompute, to cut the loss into chunks, and to choose batch sizes and strategy."""
    job = evaluator.job
    run = replace(job.run, recompute="auto", loss="auto", micro_batch_size="auto", parallel="auto", placement="auto")
    return evaluator.variant("without pins", replace(job, run=run))


def _sharded(evaluator: Evaluator, device: Device) -> str:
    """The fewest GPUs over which FSDP makes the job fit, named also where it is more than the job allows."""
    for count in _SHARDS:
        nodes = max(1, count // 8)
        least = evaluator.least_memory(Cluster(device=device, num_gpus=count, nodes=nodes))
        if least is not None and least[1].fit_probability >= FIT_PROBABILITY:
            return _("{count} x {gpu} with {config}").format(count=count, gpu=device.name, config=least[0].label)
    return ""


def _with_lora(evaluator: Evaluator, device: Device) -> str:
    job = evaluator.job
    if job.tune.method != "full" or evaluator.arch.modality == "image":
        return ""
    lora = replace(job, tune=replace(job.tune, method="lora", freeze=[]))
    other = evaluator.variant("lora", lora)
    least = other.least_memory(Cluster(device=device, num_gpus=1))
    if least is None or least[1].fit_probability < FIT_PROBABILITY:
        return ""
    return _("tune.method: lora on one {gpu}, {need:.1f} GB").format(gpu=device.name, need=least[1].expected_bytes / GB)
