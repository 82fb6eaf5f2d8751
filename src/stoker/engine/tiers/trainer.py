"""The tier engine's face: a model and a schedule (or budgets) in, steps out. Usable from a plain PyTorch loop.

    trainer = TieredTrainer(model, lr=1e-5, budgets=TierBudgets(hbm_bytes=24 * 10**9), device="cuda")
    result = trainer.step(micro_batches)      # loss over the step's unmasked tokens, gradient norm, applied or not
    trainer.flush()                           # before evaluating, saving or leaving

A step with a loss or gradient that is not finite, or an fp16 overflow, changes nothing and says so. What broke in the
middle of a step (an interrupt, a failing disk) leaves a trainer that refuses to go on until a state is loaded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.schedule import TierBudgets, TierSchedule
from stoker.engine.loss_scale import LossScale
from stoker.engine.tiers.adamw import Rule
from stoker.engine.tiers.assembly import Assembly, assemble
from stoker.engine.tiers.clock import StepSeconds
from stoker.engine.tiers.losses import causal_lm_loss, causal_lm_weight
from stoker.engine.tiers.nvme import FlashPort
from stoker.engine.tiers.units import HuggingFaceProgram, LossFunction, ModuleListProgram, Program
from stoker.engine.tiers.update import Pending

_EPSILON = np.float32(1e-6)
_UNTIMED = StepSeconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """`loss`: mean over the step's units of loss. `norm`: of the unclipped gradient. `applied`: False for a no-op.
    `seconds`: where its time went.

    `overflow`: the no-op is an fp16 overflow, and the loss scale is lower now: the same step may be tried again.
    """

    loss: float
    norm: float
    applied: bool
    overflow: bool = False
    seconds: StepSeconds = _UNTIMED


class TieredTrainer:
    """Trains `model` (a Hugging Face model, or a list of modules) exactly, its state spread over memory tiers.

    `param_groups`: as torch's optimizers take them (`params`, `lr`, `weight_decay`); else all with `lr` and
    `weight_decay`. `max_grad_norm` 0: no clipping, and updates run in backward. `loss`(model or output, micro-batch)
    sums over a micro-batch, `weight`(micro-batch) counts what it summed. `schedule`, or `budgets` (a rule chooses), or
    neither: everything on the device. `boundary_bytes`: of one micro-batch between two blocks, where known beforehand.
    Raises ModelError ST463, RunError ST460 to ST462.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        *,
        lr: float = 1e-5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
        param_groups: Sequence[Mapping[str, Any]] | None = None,
        loss: LossFunction | None = None,
        weight: Callable[[Any], float] | None = None,
        device: torch.device | str = "cpu",
        schedule: TierSchedule | Callable[[Sequence[Any]], TierSchedule] | None = None,
        budgets: TierBudgets | None = None,
        micro_batches: int = 1,
        boundary_bytes: int = 0,
        nvme_dir: Path | str | None = None,
        seed: int = 0,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        scaler: LossScale | None = None,
        probe: Any = None,
        notice: Callable[[str], None] = lambda _text: None,
        flash_port: FlashPort | None = None,
        lanes: Any = None,
    ) -> None:
        self.device = torch.device(device)
        self._weight = weight or causal_lm_weight
        self._max_norm, self.scaler = max_grad_norm, scaler
        self._rule = Rule(beta1=betas[0], beta2=betas[1], eps=eps)
        self.program: Program
        if isinstance(model, nn.Module):
            self.program = HuggingFaceProgram(model, loss or causal_lm_loss, probe)
        else:
            if loss is None:
                raise ValueError("a list of modules needs a loss(output, micro_batch)")
            self.program = ModuleListProgram(model, loss)
        learning = [p for p in self.program.root.parameters() if p.requires_grad]
        groups = list(param_groups or [{"params": learning}])
        self.rates = [float(group.get("lr", lr)) for group in groups]
        self._decays = tuple(float(group.get("weight_decay", weight_decay)) for group in groups)
        self._assembly = assemble(
            self.program,
            groups={id(p): i for i, group in enumerate(groups) for p in group["params"]},
            device=self.device,
            schedule=schedule,
            budgets=budgets,
            micro_batches=micro_batches,
            boundary_bytes=boundary_bytes,
            nvme_dir=Path(nvme_dir) if nvme_dir is not None else None,
            seed=seed,
            autocast=autocast,
            notice=notice,
            flash_port=flash_port,
            lanes=lanes,
        )
        self.steps = 0
        self._broken = self._closed = False

    @property
    def schedule(self) -> TierSchedule:
        """What is executed."""
        return self._assembly.schedule

    @property
    def assembly(self) -> Assembly:
        """The engine's parts, for saving and for reports."""
        return self._assembly

    def step(
        self, micro_batches: Sequence[Any], *, rates: Sequence[float] | None = None, number: int | None = None
    ) -> StepResult:
        """One optimizer step over `micro_batches`, on the device already. `rates`: learning rate of each group.

        `number`: of the step, from 0, which keys its draws (default: how many were applied).
        """
        self._check_whole()
        step = self.steps if number is None else number
        weight = max(sum(float(self._weight(batch)) for batch in micro_batches), 1e-30)
        scale = self.scaler.scale if self.scaler else 1.0
        chosen = tuple(rates if rates is not None else self.rates)
        decided = Pending(rates=chosen, decays=self._decays, grad_scale=1.0, rule=self._rule)
        immediate = decided if self._max_norm <= 0 and self.scaler is None else None
        with self._whole_or_broken():
            self.program.root.train()
            total, norm = self._assembly.executor.run(
                micro_batches, step=step, factor=scale / weight, unscale=1.0 / scale, immediate=immediate
            )
            loss_value, norm_value = torch.stack((total.float() / weight, norm)).tolist()
            seconds = self._assembly.executor.clock.take()
            result = self._decide(loss_value, norm_value, decided, immediate is not None, step)
            return replace(result, seconds=seconds)

    def flush(self) -> None:
        """Make every update that is decided; weights and state then lie whole where they live."""
        self._check_whole()
        with self._whole_or_broken():
            self._assembly.executor.flush()

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        """The model, complete and in evaluation mode, its streamed blocks brought in as it runs."""
        self.flush()
        root = self.program.root
        was_training = root.training
        root.eval()
        try:
            with self._assembly.streaming():
                yield root
        finally:
            root.train(was_training)

    def close(self) -> None:
        """Finish and give back threads, scratch space and pinned memory; the model keeps its weights."""
        if not (self._broken or self._closed):
            self.flush()
        self._closed = True
        self._assembly.close()

    def release(self) -> None:
        """`close`, and give every parameter memory of its own on the host: the model stands alone."""
        if not self._broken:
            self.flush()
        for home in self._assembly.homes:
            self._assembly.bring_home(home)
        self._closed = True
        self._assembly.close()

    def broken(self) -> bool:
        """Whether a step ended in the middle, so that a state must be loaded first."""
        return self._broken

    def loaded(self, steps: int) -> None:
        """A whole state was loaded, after `steps` updates."""
        self.steps, self._broken = steps, False

    def _decide(self, loss: float, norm: float, decided: Pending, immediate: bool, step: int) -> StepResult:
        executor = self._assembly.executor
        finite = np.isfinite(loss) and np.isfinite(norm)
        if immediate:
            if not finite and np.isfinite(loss):
                raise RunError(
                    "ST465",
                    _("the gradient of step {step} is not finite, and without clipping some units were updated").format(
                        step=step + 1
                    ),
                    place="train.max_grad_norm",
                    fix=_("resume from the last checkpoint; a max_grad_norm above 0 makes such a step change nothing"),
                )
        elif not finite:
            executor.decide(None)
        else:
            executor.decide(replace(decided, grad_scale=clip_coefficient(norm, self._max_norm)))
            if not self.schedule.deferred_update:
                executor.flush()
        overflow = not finite and self.scaler is not None and bool(np.isfinite(loss))
        if overflow and self.scaler is not None:
            self.scaler.overflowed(self.steps)
        if finite:
            self.steps += 1
            if self.scaler is not None:
                self.scaler.succeeded()
        return StepResult(loss=loss, norm=norm, applied=bool(finite), overflow=overflow)

    def _check_whole(self) -> None:
        if self._broken:
            raise RunError(
                "ST464",
                _("an earlier step ended in the middle: some units are old, some new"),
                place="TieredTrainer",
                fix=_("load the last checkpoint, then go on from its step"),
            )

    @contextmanager
    def _whole_or_broken(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True
            raise


def clip_coefficient(norm: float, max_norm: float) -> float:
    """max_norm / (norm + 1e-6), at most 1, in fp32 as torch's clip_grad_norm_; 1 where `max_norm` is 0."""
    if max_norm <= 0:
        return 1.0
    inverse = np.float32(1.0) / (np.float32(norm) + _EPSILON)  # torch divides a number by a tensor in this way
    return float(min(np.float32(1.0), np.float32(max_norm) * inverse))
