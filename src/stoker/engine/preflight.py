"""What can be known to fail is told before step 1: space, the device's number formats, memory.

Sizes in bytes. Nothing here changes a weight; the probe's gradients are thrown away.
"""

from dataclasses import replace
from pathlib import Path

import torch

from stoker.core.errors import RunError
from stoker.core.hardware import Device
from stoker.core.i18n import _
from stoker.core.ledger import Linear, ModuleGroup
from stoker.core.run_config import RunConfig
from stoker.engine.checkpoint import require_space_for_run
from stoker.engine.memory import PROBE
from stoker.engine.session import Session
from stoker.engine.state import model_tensors
from stoker.engine.tiers.session import TieredUpdater
from stoker.techniques.attention import attention
from stoker.techniques.attention.flash import Flash, require_flash_attn
from stoker.techniques.optimizer import optimizer
from stoker.techniques.precision import precision


def optimizer_bytes(name: str, parameters: list[torch.nn.Parameter], *, masters: bool) -> tuple[int, int]:
    """(state after the first step, fp32 masters of 16-bit parameters) in bytes."""
    state = held = 0
    for itemsize in {p.element_size() for p in parameters}:
        count = sum(p.numel() for p in parameters if p.element_size() == itemsize)
        master = 4.0 if masters and itemsize < 4 else 0.0
        matrices = [p for p in parameters if p.element_size() == itemsize and p.ndim == 2]
        group = ModuleGroup(
            name="all",
            kind="block",
            num_params=count,
            linears=tuple(Linear(name="", in_features=p.shape[1], out_features=p.shape[0]) for p in matrices),
            weight_bytes_per_param=float(itemsize),
            master_bytes_per_param=master,
        )
        state += optimizer(name).state_bytes(group)
        held += round(master * count)
    return state, held


def check_space(session: Session) -> None:
    """Room on the run folder's mount for keep + 1 checkpoints and the model (case 14). Raises RunError ST450."""
    tensors = model_tensors(session.model, trainable_only=session.trainable_only)
    each = sum(t.numel() * t.element_size() for t in tensors.values())
    each += sum(_optimizer_bytes_of(session))
    adapter_alone = session.trainable_only and not session.job.tune.merge
    exported = model_tensors(session.built.network, trainable_only=adapter_alone)
    model_bytes = sum(t.numel() * t.element_size() for t in exported.values())
    require_space_for_run(session.out_dir, each, session.job.save.keep, model_bytes=model_bytes)


def _optimizer_bytes_of(session: Session) -> tuple[int, int]:
    learning = [p for p in session.model.parameters() if p.requires_grad]
    return optimizer_bytes(
        session.job.train.optimizer, learning, masters=session.candidate.run_config.precision in ("bf16", "fp8")
    )


def _bytes_of_second_step(session: Session) -> int:
    """What lies beside forward and backward from the second step on: optimizer state, fp32 sums of gradients."""
    narrow = sum(p.numel() for p in session.model.parameters() if p.requires_grad and p.element_size() < 4)
    accumulates = session.steps.micro_batch_size < session.steps.global_batch_size
    return _optimizer_bytes_of(session)[0] + (4 * narrow if accumulates else 0)


def check_writable(out_dir: Path) -> None:
    """Raises RunError ST401 where the run folder cannot be made or written."""
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        probe = out_dir / ".writable"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise RunError(
            "ST401",
            _("the run folder cannot be written: {error}").format(error=error.strerror or error),
            place=str(out_dir),
            fix=_("choose a folder that you may write, on a disk with free space, with --out"),
        ) from error


def choose_device(planned: Device, config: RunConfig, num_gpus: int) -> torch.device:
    """The torch device of a plan.

    Raises RunError ST405 to ST407 where this machine is not what was planned, EnvironmentProblem ST581 where it lacks
    a package.
    """
    if num_gpus > 1 and planned.kind == "cuda":
        raise RunError(
            "ST407",
            _("the plan is for {count} GPUs; this version trains on one").format(count=num_gpus),
            place=planned.name,
            fix=_("plan with hardware.num_gpus: 1; the global batch stays the same"),
        )
    if planned.kind != "cuda":
        actual, device = planned, torch.device("cpu")
    elif torch.cuda.is_available():
        device = torch.device("cuda", 0)
        actual = replace(planned, compute_capability=torch.cuda.get_device_capability(device))
    else:
        raise RunError(
            "ST405",
            _("the plan is for {device}, and no CUDA GPU is usable here").format(device=planned.name),
            place=planned.name,
            fix=_("run on a machine with that GPU, or plan with hardware: {here: true}"),
        )
    _check_formats(actual, config)
    return device


def _check_formats(device: Device, config: RunConfig) -> None:
    for kind, technique in (("precision", precision(config.precision)), ("attention", attention(config.attention))):
        why = technique.unsupported(device)
        if why is not None:
            raise RunError("ST406", why, place=device.name, fix=_("change run.{kind}").format(kind=kind))
    if config.attention == Flash.name:
        require_flash_attn()


def idle_gpus_notice(device: torch.device, world_size: int) -> str | None:
    """One line when GPUs stand idle (case 18): they are never used silently."""
    visible = torch.cuda.device_count() if device.type == "cuda" else 0
    if visible <= world_size:
        return None
    return _(
        "{visible} GPUs are visible, {used} is used: the effective batch does not change with their number"
    ).format(visible=visible, used=world_size)


def probe_longest(session: Session) -> int | None:
    """Forward and backward of the fullest micro-batch, with what the second step holds beside them (cases 4 and 8).

    CUDA only; returns the reserved bytes. Raises RunError ST428 when it does not fit. Weights stay untouched.
    """
    if session.device.type != "cuda" or isinstance(session.updater, TieredUpdater):
        return None  # under tiers the first step shows it, before anything is updated
    micro = session.steps.source.collate(session.steps.longest())
    session.model.train()
    try:
        held = torch.empty(_bytes_of_second_step(session), dtype=torch.uint8, device=session.device)
        with session.autocast():
            loss = session.objective.loss_sum(session.model, micro.to(session.device))
        torch.autograd.backward(loss * session.updater.loss_factor(max(micro.weight, 1.0)))
        del held, loss
    except torch.cuda.OutOfMemoryError as error:
        raise RunError(
            "ST428",
            _("the longest micro-batch ({samples} x {length}) does not fit: {error}").format(
                samples=micro.samples, length=micro.padded_tokens // micro.samples, error=str(error).split(". ")[0]
            ),
            place=torch.cuda.get_device_name(session.device),
            fix=_("lower run.micro_batch_size or train.seq_len, or set run.recompute: full"),
        ) from error
    finally:
        session.updater.optimizer.zero_grad(set_to_none=True)
    _allocated, reserved = session.memory.read(PROBE)
    torch.cuda.empty_cache()  # what was held for the optimizer is one block, which it could not use in pieces
    return reserved
