"""The terms of a step and of the whole run with formula, inputs and source: what `plan --explain` shows of time.

Formulas are those of docs/math.md, sections 2 to 4; inputs are read from the scenario that was estimated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from stoker.core.estimate import Source, TimeEstimate, weakest
from stoker.core.explanation import ExplainedTerm, Input
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.profile import DataProfile
from stoker.core.save_interval import DEFAULT_MTBF_S
from stoker.estimators.comm import link
from stoker.estimators.compute import optimizer_time
from stoker.estimators.scenario import Scenario, mean_batch
from stoker.estimators.total_time import num_evaluations, num_saves, save_s
from stoker.estimators.utilisation import peak_of
from stoker.planner.terms import constant, given, learning_input
from stoker.planner.tier_terms import transfer_inputs

_Inputs = tuple[Input, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What the inputs are read from."""

    scenario: Scenario
    time: TimeEstimate
    job: Job
    profile: DataProfile


_Specs = Mapping[str, tuple[str, str, Callable[[_Run], _Inputs]]]


def step_terms(scenario: Scenario, job: Job, profile: DataProfile, time: TimeEstimate) -> tuple[ExplainedTerm, ...]:
    """Every term of one optimizer step that is not zero."""
    run = _Run(scenario=scenario, time=time, job=job, profile=profile)
    return _terms(time.step_terms, _step_specs(), run)


def total_terms(scenario: Scenario, job: Job, profile: DataProfile, time: TimeEstimate) -> tuple[ExplainedTerm, ...]:
    """Every line of the whole run that is not zero."""
    run = _Run(scenario=scenario, time=time, job=job, profile=profile)
    return _terms(time.total_terms, _total_specs(), run)


def _step_specs() -> _Specs:
    return {
        "compute": (
            "g sum_i n_i (FLOP / (e P) + bytes / (e_m B) + kernels t_k)",
            _("matrix products at their share of the peak, element-wise work at its share of the bandwidth"),
            _compute,
        ),
        "optimizer": ("bytes moved / (e_m B)", _("the update reads and writes its state once"), _optimizer),
        "exposed_comm": (
            "sum (alpha rounds + bytes factor / beta) - hidden",
            _("collectives of a step that computing does not hide, and waiting for the slowest GPU"),
            _communication,
        ),
        "exposed_transfer": (
            "max(stream - compute, 0) + max(update - hidden, 0)",
            _("traffic between memory tiers, and updates outside the GPU, that computing does not hide"),
            lambda run: transfer_inputs(run.scenario),
        ),
        "bubble": (
            "(p - 1) / (m v) x compute",
            _("stages of a pipeline that wait for the first and last batch"),
            _bubble,
        ),
        "host_overhead": (
            "max(host - device, 0) + fixed",
            _("launching kernels from Python, as far as the device waits for it"),
            _host,
        ),
        "data_wait": (
            "max(samples t_load / workers - busy, 0)",
            _("what the loader needs beyond the step"),
            _data_wait,
        ),
    }


def _total_specs() -> _Specs:
    return {
        "boot": (
            "boot",
            _("until a rented machine answers"),
            lambda run: (constant(run.scenario, "boot_s", _("boot"), "s"),),
        ),
        "image": (
            "install",
            _("pulling the image and its packages"),
            lambda run: (constant(run.scenario, "install_s", _("image"), "s"),),
        ),
        "download": ("2 N / rate", _("16-bit weights from the hub"), _download),
        "load": ("import + weights / rate", _("starting Python and reading the weights"), _load),
        "tokenise": ("tokens / rate", _("the data once; it is cached"), _tokenise),
        "compile": ("capture", _("compiling the step"), _capture),
        "warm_up": (
            "warm_up",
            _("first kernels and library set-up"),
            lambda run: (constant(run.scenario, "warm_up_s", _("warm-up"), "s"),),
        ),
        "steps": ("steps x step", _("the training itself"), _steps),
        "evaluation": (
            "evaluations x (ceil(n_eval / (b D)) forward + fixed)",
            _("forward over the evaluation data"),
            _evaluation,
        ),
        "saves": ("saves x (fixed + bytes / rate)", _("writing checkpoints"), _saves),
        "restarts": (
            "total / mtbf x (start + save interval / 2)",
            _("expected interruptions of a spot machine, what each costs"),
            _restarts,
        ),
    }


def _terms(
    values: Mapping[str, float],
    specs: _Specs,
    run: _Run,
) -> tuple[ExplainedTerm, ...]:
    found = []
    for name, value in values.items():
        if not value:
            continue
        formula, words, make = specs.get(name, ("", "", _none))
        inputs = make(run)
        found.append(
            ExplainedTerm(
                name=name,
                value=value,
                formula=formula,
                words=words,
                inputs=inputs,
                source=_source(name, inputs, run.time),
            )
        )
    return tuple(found)


def _source(name: str, inputs: _Inputs, time: TimeEstimate) -> Source:
    """A correction by own runs covers the step and what is made of steps; the rest is as good as its inputs."""
    stepping = name in time.step_terms or name in ("steps", "evaluation")
    if time.source is Source.CALIBRATED and stepping:
        return Source.CALIBRATED
    return weakest(*[item.source for item in inputs]) if inputs else time.source


def _none(_run: _Run) -> _Inputs:
    return ()


def _compute(run: _Run) -> _Inputs:
    batch = mean_batch(run.scenario)
    shares = run.scenario.efficiency.speed(run.scenario.cluster.device, run.scenario.ledger.compute_dtype)
    peak, peak_name = peak_of(run.scenario)
    device = run.scenario.cluster.device
    return (
        given("g", _("micro-batches of a step"), run.scenario.config.gradient_accumulation_steps),
        given("T", _("computed tokens of a mean micro-batch"), batch.tokens),
        given("FLOP", _("of the model in a step on one GPU, recomputation left out"), run.time.model_flops, "flops"),
        given("P", peak_name, peak, "flops_per_s", device.source),
        given("e", _("share of the peak in large products"), shares.matmul_frac, "frac", shares.source),
        given("B", _("memory bandwidth"), device.memory_bytes_per_s, "bytes_per_s", device.source),
        given("e_m", _("share of the bandwidth"), shares.memory_frac, "frac", shares.source),
        given("t_k", _("shortest kernel"), shares.kernel_s, "s", shares.source),
    )


def _optimizer(run: _Run) -> _Inputs:
    device = run.scenario.cluster.device
    shares = run.scenario.efficiency.speed(device, run.scenario.ledger.compute_dtype)
    moved = optimizer_time(run.scenario).device_s * device.memory_bytes_per_s * shares.memory_frac
    return (
        learning_input(run.scenario),
        given("bytes", _("read and written by the update"), moved, "bytes"),
        given("B", _("memory bandwidth"), device.memory_bytes_per_s, "bytes_per_s", device.source),
        given("e_m", _("share of the bandwidth"), shares.memory_frac, "frac", shares.source),
    )


def _communication(run: _Run) -> _Inputs:
    ranks = run.scenario.config.parallel.world_size
    if ranks <= 1:
        return ()
    alpha, beta = link(run.scenario.cluster, ranks)
    return (
        given("D", _("GPUs"), ranks),
        given("alpha", _("latency of a round"), alpha, "s", Source.ASSUMED),
        given(
            "beta", _("rate of the slowest link of the ring"), beta, "bytes_per_s", run.scenario.cluster.device.source
        ),
        constant(run.scenario, "straggler_frac", _("waiting for the slowest, a doubling of GPUs")),
    )


def _bubble(run: _Run) -> _Inputs:
    parallel = run.scenario.config.parallel
    return (
        given("p", _("pipeline stages"), parallel.pp),
        given("m", _("micro-batches of a step"), run.scenario.config.gradient_accumulation_steps),
        given("v", _("chunks of a stage"), parallel.virtual_stages),
    )


def _host(run: _Run) -> _Inputs:
    shares = run.scenario.efficiency.speed(run.scenario.cluster.device, run.scenario.ledger.compute_dtype)
    kernels = sum(unit.repeats * unit.num_kernels for unit in run.scenario.sums.units)
    return (
        given("kernels", _("kernels of one forward"), kernels),
        given("t_h", _("host time of a kernel"), shares.host_s_per_kernel, "s", shares.source),
        constant(run.scenario, "host_s_per_step", _("the loop's own bookkeeping"), "s"),
        constant(run.scenario, "host_s_per_optimizer_step", _("clipping and the update"), "s"),
    )


def _data_wait(run: _Run) -> _Inputs:
    samples = run.scenario.config.micro_batch_size * run.scenario.config.gradient_accumulation_steps
    name = "load_s_per_image_224" if run.scenario.is_image else "load_s_per_text"
    return (
        given("samples", _("samples of a step on one GPU"), samples),
        given("workers", _("loader processes"), run.scenario.config.workers),
        constant(run.scenario, name, _("loading one"), "s"),
    )


def _download(run: _Run) -> _Inputs:
    return (
        given("N", _("parameters"), run.scenario.ledger.arch.num_params),
        constant(run.scenario, "download_bytes_per_s", _("rate"), "bytes_per_s"),
    )


def _capture(run: _Run) -> _Inputs:
    return (given("capture", _("how the step is captured"), run.scenario.config.capture, "name", Source.ASSUMED),)


def _steps(run: _Run) -> _Inputs:
    return (
        given("steps", _("optimizer steps"), run.time.num_steps),
        given("step", _("a mean step"), run.time.step_s, "s", run.time.source),
    )


def _restarts(run: _Run) -> _Inputs:
    return (
        given("mtbf", _("between interruptions"), DEFAULT_MTBF_S, "s", Source.ASSUMED),
        given("restart", _("starting again and half a save interval"), run.time.restart_s, "s", Source.ASSUMED),
    )


def _load(run: _Run) -> _Inputs:
    correction = run.scenario.correction
    if correction is not None and correction.start_s is not None:
        text = _("from the command to the first step, as an own run took it")
        return (given("start", text, run.time.total_terms["load"], "s", Source.MEASURED),)
    return (
        constant(run.scenario, "import_s", _("starting Python and its libraries"), "s"),
        given("weights", _("bytes of the weights"), run.scenario.sums.weights_unsharded_bytes, "bytes"),
        constant(run.scenario, "load_bytes_per_s", _("reading weights to the device"), "bytes_per_s"),
    )


def _tokenise(run: _Run) -> _Inputs:
    samples = run.profile.num_samples + run.profile.num_eval_samples
    return (
        given("tokens", _("tokens of all samples"), samples * run.profile.lengths.mean),
        constant(run.scenario, "tokenise_tokens_per_s", _("tokens a second"), "count"),
    )


def _evaluation(run: _Run) -> _Inputs:
    scenario, count = run.scenario, num_evaluations(run.job, run.profile)
    batch, ranks = mean_batch(scenario).samples, scenario.config.parallel.data_parallel
    fixed = scenario.efficiency.constants["evaluation_fixed_s"]
    passes = ceil(run.profile.num_eval_samples / (batch * ranks))
    forward = (run.time.total_terms["evaluation"] / max(count, 1) - fixed) / max(passes, 1)
    return (
        given("evaluations", _("evaluations of the run"), count),
        given("n_eval", _("evaluation samples"), run.profile.num_eval_samples),
        given("b", _("samples of a micro-batch"), batch),
        given("D", _("GPUs"), ranks),
        given("forward", _("one micro-batch forward"), forward, "s", run.time.source),
        constant(run.scenario, "evaluation_fixed_s", _("metrics and thresholds"), "s"),
    )


def _saves(run: _Run) -> _Inputs:
    count = num_saves(run.job, run.profile, run.time.num_steps * run.time.step_s)
    return (
        given("saves", _("checkpoints of the run"), count),
        given("save", _("one checkpoint"), save_s(run.scenario), "s"),
        constant(run.scenario, "save_bytes_per_s", _("writing, with hash and fsync"), "bytes_per_s"),
    )
