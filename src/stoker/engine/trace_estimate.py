"""Peak memory of one training step by tracing it: the run's own model, loss and optimizer over fake tensors, in bytes.

No number is computed and nothing is allocated: FakeTensorMode carries shapes, and torch.distributed._tools' MemTracker
adds up what lives. Both are private to torch, so every use of them stands in this file, and anything that breaks is a
`TraceGap` with its reason, beside which the analytic estimate stands. The trace runs in a process of its own: the
caller never loads torch.

What it sees: parameters, masters, gradients, optimizer state, activations, the loss, and what backward makes on the
way, in the order in which the engine does it. What it cannot see: the allocator's slack, context and workspaces.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from stoker.core.i18n import _, language, set_language
from stoker.core.plan import Candidate, Plan
from stoker.core.plan_io import plan_from_json, plan_to_json

if TYPE_CHECKING:
    import torch

    from stoker.engine.microbatch import MicroBatch

TIMEOUT_S: Final = 900.0
_REASON: Final = 200  # characters of torch's own message
_TERMS: Final = {
    "Parameter": "params",
    "Buffer": "params",
    "Gradient": "grads",
    "Optstate": "optimizer_states",
    "Other": "masters",
    "Activation": "activations",
    "Temp": "temp_buffers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPeak:
    """Allocated bytes at the fullest moment of a step. `terms` sum to `peak_allocated_bytes`; logits and the loss
    are in activations and temp_buffers. `phase_bytes`: the peak up to the end of forward, backward, optimizer.
    `notes`: where the trace is not what the device will do."""

    peak_allocated_bytes: int
    terms: Mapping[str, int]
    phase_bytes: Mapping[str, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGap:
    """There is no trace, and why."""

    reason: str


def trace_memory(
    plan: Plan, candidate: Candidate, *, samples: int, seq_len: int, timeout_s: float = TIMEOUT_S
) -> TracedPeak | TraceGap:
    """The peak of one step of `candidate` over a micro-batch of `samples` x `seq_len`, traced in a fresh process."""
    gap = _out_of_reach(plan, candidate)
    if gap is not None:
        return TraceGap(reason=gap)
    request = {"plan": plan_to_json(plan), "rank": candidate.rank, "samples": samples, "seq_len": seq_len}
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "stoker.engine.trace_estimate"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, **quiet, "STOKER_LANG": language()},
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return TraceGap(reason=_("the trace took longer than {seconds:.0f} s").format(seconds=timeout_s))
    except OSError as error:
        return TraceGap(reason=str(error))
    return _read_answer(done)


def _out_of_reach(plan: Plan, candidate: Candidate) -> str | None:
    """Why this candidate cannot be traced as it would run, or None."""
    config = candidate.run_config
    if any(find_spec(name) is None for name in ("torch", "transformers")):
        return _("torch or transformers is not installed here")
    if plan.model.is_approximate:
        return _("a vision-language model is planned only")
    if config.parallel.world_size > config.parallel.dp_replicate:
        return _("what is sharded over several GPUs is not traced")
    if plan.job.tune.method == "qlora":
        return _("4-bit kernels cannot be traced")
    if config.placement not in ("none", "auto", "hbm") or config.recompute == "offloaded":
        return _("what moves between memory tiers is not traced")
    return None


def _read_answer(done: subprocess.CompletedProcess[str]) -> TracedPeak | TraceGap:
    lines = done.stdout.splitlines()
    try:
        answer = json.loads(lines[-1])
        if "gap" in answer:
            return TraceGap(reason=str(answer["gap"]))
        return TracedPeak(
            peak_allocated_bytes=int(answer["peak_allocated_bytes"]),
            terms={str(name): int(value) for name, value in answer["terms"].items()},
            phase_bytes={str(name): int(value) for name, value in answer["phase_bytes"].items()},
            notes=tuple(answer["notes"]),
        )
    except (IndexError, ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return TraceGap(reason=last[:_REASON])


def main() -> None:
    """The traced process: a request on stdin, the answer as the last line of stdout."""
    set_language(os.environ.get("STOKER_LANG"))
    request = json.loads(sys.stdin.read())
    plan = plan_from_json(request["plan"])
    candidate = plan.candidate(request["rank"])
    assert candidate is not None
    answer: dict[str, Any]
    try:
        traced = trace_here(plan, candidate, samples=int(request["samples"]), seq_len=int(request["seq_len"]))
        answer = asdict(traced)
    except Exception as error:  # any failure of model code over fake tensors is a gap, not a bug
        message = (str(error).splitlines() or [""])[0][:_REASON]
        answer = {"gap": f"{type(error).__name__}: {message}"}
    print("\n" + json.dumps(answer))


def trace_here(plan: Plan, candidate: Candidate, *, samples: int, seq_len: int) -> TracedPeak:
    """The trace itself, in this process: optimizer state first (from gradients that are let go again), then one step
    as the loop takes it. Raises whatever model code raises over fake tensors."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from stoker.engine.param_groups import parameter_groups
    from stoker.techniques.optimizer import optimizer
    from stoker.techniques.precision import precision
    from stoker.techniques.precision.accumulate import GradientAccumulator

    job, config = plan.job, candidate.run_config
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, fresh, objective = _build(plan, candidate)
    form = precision(config.precision)
    with FakeTensorMode(allow_non_fake_inputs=True):
        _make_fake(model, device)
        learning = [p for p in model.parameters() if p.requires_grad]
        stepper = form.wrap_optimizer(optimizer(job.train.optimizer), parameter_groups(model, job.train, fresh))
        micro = _micro_batch(plan, model, samples, seq_len, device)
        accumulator = GradientAccumulator(learning, config.gradient_accumulation_steps)
        model.train()
        tracker = _tracker(model)
        tracker.track_external(*getattr(stepper, "masters", {}).values(), *micro.inputs.values(), micro.targets)
        phases: dict[str, int] = {}
        with _as_on_a_gpu(), _all_counted(), tracker:
            for parameter in learning:
                parameter.grad = torch.empty_like(parameter)
            stepper.step()
            stepper.zero_grad(set_to_none=True)
            phases["optimizer"] = _peak(tracker)[0]
            _forget_peak(tracker)
            for _micro in range(min(config.gradient_accumulation_steps, 2)):
                with form.autocast(device.type):
                    loss = objective.loss_sum(model, micro)
                phases["forward"] = _peak(tracker)[0]
                torch.autograd.backward(loss)
                accumulator.add()
                tracker.name_gradients(accumulator._sums.values())
                del loss
            phases["backward"], snapshot = _peak(tracker)
            accumulator.finish()
            stepper.step()
            phases["optimizer"] = max(phases["optimizer"], _peak(tracker)[0])
            stepper.zero_grad(set_to_none=True)
    terms: dict[str, int] = {}
    for kind, value in snapshot.items():
        terms[_TERMS[kind]] = terms.get(_TERMS[kind], 0) + value
    notes = [] if device.type == "cuda" else [_("traced with the CPU's kernels, for this torch has no CUDA")]
    peak = max(phases.values())
    terms["temp_buffers"] = terms.get("temp_buffers", 0) + peak - sum(terms.values())  # where the update is the peak
    return TracedPeak(peak_allocated_bytes=peak, terms=terms, phase_bytes=phases, notes=tuple(notes))


def _build(plan: Plan, candidate: Candidate) -> tuple["torch.nn.Module", frozenset[str], Any]:
    """(model on `meta`, fresh parameters, objective): the run's own construction, with random weights."""
    from dataclasses import replace

    import torch

    from stoker.engine.build import build_model
    from stoker.engine.objective import MultiLabel, NextToken, SingleLabel
    from stoker.techniques.loss import loss

    resolved = replace(plan.model, folder=None, random_weights=True)
    labels = [str(number) for number in range(_num_labels(plan))]
    with torch.device("meta"):
        built = build_model(plan.job, resolved, candidate.run_config, labels)
    if plan.job.task == "causal_lm":
        return built.model, built.fresh, NextToken(loss(candidate.run_config.loss).language_model_loss)
    return built.model, built.fresh, MultiLabel() if plan.job.problem == "multi_label" else SingleLabel()


def _num_labels(plan: Plan) -> int:
    if plan.job.task == "causal_lm":
        return 0
    declared = plan.profile.num_labels or plan.job.num_declared_labels or plan.model.config.get("num_labels")
    return int(declared or len(plan.model.config.get("id2label") or ()) or 2)


def _make_fake(model: "torch.nn.Module", device: "torch.device") -> None:
    """Every parameter and buffer of `model` as a fake tensor of its shape on `device`; what is tied stays tied."""
    import torch

    known: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for store in (module._parameters, module._buffers):
            for name, old in store.items():
                if old is None:
                    continue
                if id(old) not in known:
                    new = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=device)
                    is_parameter = isinstance(old, torch.nn.Parameter)
                    known[id(old)] = torch.nn.Parameter(new, requires_grad=old.requires_grad) if is_parameter else new
                store[name] = known[id(old)]  # type: ignore[assignment]


def _micro_batch(
    plan: Plan, model: "torch.nn.Module", samples: int, seq_len: int, device: "torch.device"
) -> "MicroBatch":
    """The fullest micro-batch. Where the data's lengths differ it is padded, so its mask is a tensor in attention (and
    transformers then repeats grouped keys); where they do not, transformers drops the mask, and so does the trace."""
    import torch

    from stoker.engine.image_source import image_form
    from stoker.engine.microbatch import MicroBatch

    if plan.job.task == "image_classification":
        form = image_form(plan.job, plan.model)
        dtype = torch.float32
        inputs = {"pixel_values": torch.empty(samples, form.channels, form.size, form.size, dtype=dtype, device=device)}
    else:
        ids = torch.empty(samples, seq_len, dtype=torch.int64, device=device)
        inputs = {"input_ids": ids}
        if samples > 1 and plan.profile.lengths.maximum > plan.profile.lengths.mean:
            inputs["attention_mask"] = torch.ones_like(ids)
    if plan.job.task == "causal_lm":
        targets = torch.empty(samples, seq_len, dtype=torch.int64, device=device)
    elif plan.job.problem == "multi_label":
        targets = torch.empty(samples, _num_labels(plan), device=device)
    else:
        targets = torch.empty(samples, dtype=torch.int64, device=device)
    tokens = samples * seq_len
    return MicroBatch(
        inputs=inputs, targets=targets, samples=samples, tokens=tokens, padded_tokens=tokens, weight=float(tokens)
    )


def _tracker(model: "torch.nn.Module") -> Any:
    """torch's MemTracker over `model`, without its statistics a module: they meet neither frozen parameters nor a
    module that is called twice, and what is wanted here is the peak of the whole."""
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType

    class WholeTracker(MemTracker):  # type: ignore[no-untyped-call]
        def _ignored(self, *_of_a_module: Any) -> None:
            return None

        _pre_fw_hook = _post_fw_hook = _pre_bw_hook = _post_bw_hook = _ignored  # type: ignore[assignment]

        def name_gradients(self, gradients: Iterable["torch.Tensor | None"]) -> None:
            for gradient in gradients:
                if gradient is not None:
                    self._update_and_maybe_create_winfos(gradient, _MemRefType.GRAD)

    tracker = WholeTracker()
    tracker.track_external(model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda p: tracker.name_gradients((p.grad,)))  # type: ignore[no-untyped-call]
    return tracker


def _all_counted() -> Any:
    """A mode in which every token has a label (the fullest case): which ones do is data, which a fake tensor lacks."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class AllCounted(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.nonzero.default and args[0].dim() == 1:
                return torch.empty(args[0].numel(), 1, dtype=torch.int64, device=args[0].device)
            return func(*args, **(kwargs or {}))

    return AllCounted()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """What a GPU keeps, where this process's kernels would keep something else.

    Dropout: a mask of one byte an element, not the drawn factors. Fused attention: queries, keys, values as they are
    (grouped ones not repeated), the output and one sum a row, whatever the dropout. Layer norms under autocast: fp32.
    And the chunked loss, which takes a fake parameter for a sharded one by its type, goes the way of a whole head.
    """
    import torch
    from torch.nn import functional

    from stoker.techniques.loss import chunks

    plain_norm, attention = functional.layer_norm, _fused_attention()

    def dropout(input: "torch.Tensor", p: float = 0.5, training: bool = True, inplace: bool = False) -> "torch.Tensor":
        return torch.native_dropout(input, p, True)[0] if training and p > 0.0 else input

    def layer_norm(input: "torch.Tensor", *shape_and_weights: Any, **named: Any) -> "torch.Tensor":
        if not torch.is_autocast_enabled(input.device.type):
            return plain_norm(input, *shape_and_weights, **named)
        with torch.autocast(input.device.type, enabled=False):
            return plain_norm(input.float(), *shape_and_weights, **named)

    patched: dict[str, Any] = {
        "dropout": dropout,
        "layer_norm": layer_norm,
        "scaled_dot_product_attention": lambda query, key, value, attn_mask=None, *_options, **_named: attention.apply(
            query, key, value, attn_mask
        ),
    }
    kept, judge = {name: getattr(functional, name) for name in patched}, chunks._is_sharded
    chunks._is_sharded = lambda weight: False
    try:
        for name, function in patched.items():
            setattr(functional, name, function)
        yield
    finally:
        chunks._is_sharded = judge
        for name, function in kept.items():
            setattr(functional, name, function)


def _fused_attention() -> Any:
    """Memory of a fused attention kernel: output [B, H, S, D], laid out as [B, S, H, D] as those kernels do."""
    import torch

    class FusedAttention(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor", mask: "torch.Tensor | None"
        ) -> "torch.Tensor":
            batch, heads, rows, _width = query.shape
            output = query.new_empty(batch, rows, heads, value.shape[-1]).transpose(1, 2)
            sums = torch.empty(batch, heads, rows, dtype=torch.float32, device=query.device)
            ctx.save_for_backward(query, key, value, output, sums, mask)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: "torch.Tensor") -> "tuple[torch.Tensor | None, ...]":
            query, key, value, *_rest = ctx.saved_tensors
            return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None

    return FusedAttention


def _peak(tracker: Any) -> tuple[int, dict[str, int]]:
    """(bytes, bytes by kind) at the fullest moment so far, over all devices."""
    total, kinds = 0, dict[str, int]()
    for snapshot in tracker.get_tracker_snapshot("peak").values():
        for kind, value in snapshot.items():
            if str(kind) == "Total":
                total += value
            else:
                kinds[kind.value] = kinds.get(kind.value, 0) + value
    return total, kinds


def _forget_peak(tracker: Any) -> None:
    """The peak starts again from what lives now."""
    from copy import deepcopy

    tracker._peak_mem_snap = deepcopy(tracker._curr_mem_snap)
    tracker._peak_mem = {device: snapshot["Total"] for device, snapshot in tracker._curr_mem_snap.items()}


if __name__ == "__main__":
    main()
