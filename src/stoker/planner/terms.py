"""The terms of a memory estimate with formula, inputs and source: what `plan --explain` shows of it.

Formulas are those of docs/math.md, section 1; every input is read from the scenario that was estimated, so a term and
its inputs cannot drift apart. Values are those of the estimate, corrections included.
"""

from collections.abc import Callable, Mapping

from stoker.core.estimate import MemoryEstimate, Source, weakest
from stoker.core.explanation import ExplainedTerm, Input, Unit
from stoker.core.i18n import _
from stoker.estimators.memory import estimate_memory
from stoker.estimators.memory_phases import logit_bytes
from stoker.estimators.scenario import Scenario, fullest_batch
from stoker.estimators.stages import stage_scenarios
from stoker.techniques.loss import loss

_Inputs = tuple[Input, ...]


def given(
    symbol: str, meaning: str, value: float | str, unit: Unit = "count", source: Source = Source.ANALYTIC
) -> Input:
    """One input; `source`: analytic where it is counted from the model, the data or the job."""
    return Input(symbol=symbol, meaning=meaning, value=value, unit=unit, source=source)


def constant(scenario: Scenario, name: str, meaning: str, unit: Unit = "frac") -> Input:
    """A constant of the efficiency table by its name there; assumed where nobody says otherwise."""
    source = scenario.efficiency.constant_sources.get(name, Source.ASSUMED)
    return given(name, meaning, scenario.efficiency.constants.get(name, 0.0), unit, source)


def memory_terms(scenario: Scenario, memory: MemoryEstimate) -> tuple[ExplainedTerm, ...]:
    """Every term that is not zero, in the estimate's order; of unlike stages those of the fullest, as the estimate."""
    scenario = _fullest(scenario)
    makers: Mapping[str, tuple[str, str, Callable[[Scenario, MemoryEstimate], _Inputs]]] = {
        "params": ("N w / shards + N_a w_a", _("parameters times bytes each, over the shards"), _params),
        "grads": ("(N_t q + 4 N_t [g > 1, q < 4]) / shards", _("what learns times bytes of a gradient"), _grads),
        "optimizer_states": (
            "N_t (m + o) / shards",
            _("what learns times bytes of its fp32 master and of the optimizer's moments"),
            _states,
        ),
        "activations": (
            "sum_i n_i (T (a_i + k_i s) + b p_i)",
            _("what each unit keeps for backward, over the fullest micro-batch"),
            _activations,
        ),
        "logits": ("rows V B", _("rows times outputs times bytes of all copies alive in the loss"), _logits),
        "temp_buffers": (
            "casts + unit + workspace",
            _("casts, what one unit's backward needs beyond the loss, and the matrix library's workspace"),
            _temporary,
        ),
        "comm_buffers": (
            "gathered units + reduce buffers",
            _("what the parallel strategy gathers and reduces at a time"),
            _communication,
        ),
        "framework": (
            "context + communicator",
            _("what the driver and the libraries hold outside tensors"),
            _framework,
        ),
        "fragmentation": (
            "reserved - allocated",
            _("what the allocator reserves beyond what is allocated: shares of what stays and of what comes and goes"),
            _slack,
        ),
    }
    found = []
    for name, value in memory.terms.items():
        if value:
            formula, words, inputs = makers.get(name, ("", "", _none))
            found.append(_term(name, value, formula, words, inputs(scenario, memory), memory))
    return tuple(found)


def _fullest(scenario: Scenario) -> Scenario:
    stages = stage_scenarios(scenario)
    return max(stages, key=lambda stage: estimate_memory(stage).expected_bytes) if stages else scenario


def phase_terms(memory: MemoryEstimate) -> tuple[ExplainedTerm, ...]:
    """Bytes at the fullest moment of each phase; the largest is the allocated peak."""
    words = {
        "load": ("params", _("the weights, before anything runs")),
        "forward": ("state + saved activations + max(unit, logits)", _("at the end of forward, the loss included")),
        "backward": (
            "state + activations + logits + temporaries (+ gradients)",
            _("when backward begins; gradients beside it where they are held from step to step"),
        ),
        "optimizer": (
            "state + gradients + transient of the update",
            _("the first step creates the optimizer's state: a probe of forward and backward alone misses it"),
        ),
        "evaluation": ("state + one unit + logits", _("forward without keeping anything")),
        "save": ("state", _("what is written is what is held")),
    }
    found = []
    for name, value in memory.phases.items():
        formula, text = words.get(name, ("", ""))
        context = given(
            "context", _("context, in every phase"), memory.terms.get("framework", 0), "bytes", memory.source
        )
        found.append(_term(name, value, formula, text, (context,), memory))
    return tuple(found)


def _term(name: str, value: float, formula: str, words: str, inputs: _Inputs, memory: MemoryEstimate) -> ExplainedTerm:
    calibrated = memory.source is Source.CALIBRATED
    sources = [item.source for item in inputs] or [memory.source]
    return ExplainedTerm(
        name=name,
        value=float(value),
        formula=formula,
        words=words,
        inputs=inputs,
        source=Source.CALIBRATED if calibrated else weakest(*sources),
    )


def _none(_scenario: Scenario, _memory: MemoryEstimate) -> _Inputs:
    return ()


def _params(scenario: Scenario, _memory: MemoryEstimate) -> _Inputs:
    groups = scenario.ledger.groups
    base = sum(g.repeats * g.num_params for g in groups)
    held = sum(g.repeats * g.num_params * g.weight_bytes_per_param for g in groups)
    adapters = scenario.ledger.num_adapter_params
    items = [
        given("N", _("parameters"), base),
        given("w", _("bytes of a weight, on average"), held / base, "bytes_per_param"),
    ]
    if adapters:
        bytes_each = max(g.adapter_bytes_per_param for g in groups)
        items.append(given("N_a", _("parameters of adapters"), adapters))
        items.append(given("w_a", _("bytes of an adapter's weight"), bytes_each, "bytes_per_param"))
    return (*items, _shards(max(g.weight_shards for g in groups)))


def _shards(count: float) -> Input:
    return given("shards", _("GPUs that share it"), count)


def _learning(scenario: Scenario) -> int:
    """What learns of the rank's own groups: tensor, pipeline and expert parallel have divided them already."""
    return sum(g.repeats * g.trainable for g in scenario.ledger.groups)


def learning_input(scenario: Scenario) -> Input:
    """N_t, and whether it is the model's or only this rank's."""
    learn = _learning(scenario)
    whole = learn == scenario.ledger.num_trainable
    return given("N_t", _("parameters that learn") if whole else _("parameters of this rank that learn"), learn)


def _grads(scenario: Scenario, _memory: MemoryEstimate) -> _Inputs:
    groups = [g for g in scenario.ledger.groups if g.trainable]
    learn = max(_learning(scenario), 1)
    held = sum(
        g.repeats * (g.base_trainable * g.grad_bytes_per_param + g.adapter_params * g.adapter_bytes_per_param)
        for g in groups
    )
    return (
        learning_input(scenario),
        given("q", _("bytes of a gradient"), held / learn, "bytes_per_param"),
        given("g", _("micro-batches of a step"), scenario.config.gradient_accumulation_steps),
        _shards(max((g.grad_shards for g in groups), default=1)),
    )


def _states(scenario: Scenario, _memory: MemoryEstimate) -> _Inputs:
    groups = [g for g in scenario.ledger.groups if g.trainable]
    learn = max(_learning(scenario), 1)
    masters = sum(g.repeats * g.base_trainable * g.master_bytes_per_param for g in groups) / learn
    moments = sum(g.repeats * g.state_bytes for g in groups) / learn
    return (
        learning_input(scenario),
        given("m", _("bytes of the fp32 master"), masters, "bytes_per_param"),
        given("o", _("bytes of {optimizer}'s state").format(optimizer=scenario.optimizer), moments, "bytes_per_param"),
        _shards(max((g.state_shards for g in groups), default=1)),
    )


def _activations(scenario: Scenario, _memory: MemoryEstimate) -> _Inputs:
    batch = fullest_batch(scenario)
    items = [
        given("b", _("samples of a micro-batch"), batch.samples),
        given("s", _("tokens of its longest sample"), batch.seq_len),
        given("T", _("tokens of the fullest micro-batch, padding included"), batch.tokens),
        given("recompute", _("activations that are computed again"), scenario.config.recompute, "name"),
    ]
    for unit in scenario.sums.units:
        if unit.in_backward:
            per_token = (
                unit.input_bytes if unit.recomputed else unit.saved_bytes + unit.saved_bytes_per_key * batch.seq_len
            )
            meaning = _("{count} x {unit}: bytes kept a token").format(count=unit.repeats, unit=unit.name)
            items.append(given(f"a_{unit.name}", meaning, per_token, "bytes_per_token"))
    return tuple(items)


def _logits(scenario: Scenario, memory: MemoryEstimate) -> _Inputs:
    batch = fullest_batch(scenario)
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    outputs = scenario.ledger.num_outputs
    each = memory.terms["logits"] / max(rows * outputs, 1.0)
    copies = loss(scenario.config.loss).logits_terms(rows, outputs, logit_bytes(scenario))
    meanings = {
        "logits": _("as the head gives them; dropped before the peak where nothing holds them"),
        "fp32_copy": _("fp32 copy, as log-softmax"),
        "fp32_gradient": _("fp32 gradient of it"),
        "loss_gradient": _("gradient that the loss hands back"),
    }
    return (
        given("rows", _("rows of logits: tokens of a language model, samples of a classifier"), rows),
        given("V", _("outputs of the last layer"), outputs),
        given(
            "B",
            _("bytes an output, over all copies (loss kernel {name})").format(name=scenario.config.loss),
            each,
            "bytes_per_param",
        ),
        *(given(name, meanings.get(name, _("another copy")), size, "bytes") for name, size in copies.items() if size),
    )


def _temporary(scenario: Scenario, memory: MemoryEstimate) -> _Inputs:
    outside = scenario.efficiency.framework(scenario.cluster.device)
    casts = sum(unit.repeats * unit.cast_bytes for unit in scenario.sums.units)
    factor = memory.correction_factor or 1.0
    unit = memory.terms["temp_buffers"] / factor - casts - outside.workspace_bytes
    return (
        given("casts", _("narrow copies of weights under autocast"), casts, "bytes"),
        given("unit", _("one unit's backward or the update, beyond the loss"), max(unit, 0.0), "bytes"),
        given("workspace", _("the matrix library's workspace"), outside.workspace_bytes, "bytes", outside.source),
    )


def _communication(scenario: Scenario, _memory: MemoryEstimate) -> _Inputs:
    return (
        given("parallel", _("strategy"), scenario.config.parallel.label, "name"),
        given("D", _("GPUs"), scenario.config.parallel.world_size),
    )


def _framework(scenario: Scenario, _memory: MemoryEstimate) -> _Inputs:
    outside = scenario.efficiency.framework(scenario.cluster.device)
    several = scenario.config.parallel.world_size > 1
    items = [given("context", outside.origin or _("context"), outside.context_bytes, "bytes", outside.source)]
    if several:
        items.append(given("communicator", _("NCCL's channels"), outside.communicator_bytes, "bytes", outside.source))
    return tuple(items)


def _slack(scenario: Scenario, memory: MemoryEstimate) -> _Inputs:
    context = memory.terms.get("framework", 0)
    reserved = given(
        "reserved", _("what the allocator takes from the device"), memory.expected_bytes - context, "bytes"
    )
    allocated = given("allocated", _("the allocated peak, of the fullest phase"), memory.peak_allocated_bytes, "bytes")
    meanings = {
        "slack_held": _("share of what stays"),
        "slack_crossing": _("share of the lower of backward's two high points (loss, block)"),
        "slack_uneven": _("share of what comes and goes per e-fold of longest over mean length"),
        "slack_cpu": _("share of what comes and goes on a CPU"),
    }
    on_cpu = scenario.cluster.device.kind == "cpu"
    names = ["slack_cpu"] if on_cpu else [name for name in meanings if name != "slack_cpu"]
    known = [name for name in names if name in scenario.efficiency.constants]
    return (reserved, allocated, *(constant(scenario, name, meanings[name]) for name in known))
