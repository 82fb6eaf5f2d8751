"""`stoker run` on the tier engine: the plan's shares over this model's own units, whole steps, state for saves."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from stoker.core.errors import RunError
from stoker.core.human import format_bytes
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.run_config import RunConfig, TierShares
from stoker.core.schedule import LinkSpeeds, TierBudgets, TierSchedule, UnitSpec
from stoker.engine.loss_scale import LossScale
from stoker.engine.microbatch import StepBatch
from stoker.engine.tiers.clock import StepTimes
from stoker.engine.tiers.homes import tier_sizes
from stoker.engine.tiers.placing import TYPICAL, as_planned
from stoker.engine.tiers.saving import capture_tiers, load_weights, restore_tiers
from stoker.engine.tiers.trainer import TieredTrainer
from stoker.engine.update import Update
from stoker.observe.bandwidth import kept_rates
from stoker.techniques.placement import TIERS
from stoker.techniques.placement.replay import replay_seconds

_ENGINE = TierShares(layer_major=True, exact_pinned=True, lossless_state=True)


class TieredUpdater:
    """What the loop needs of the optimizer, where a step is the tier engine's from its first forward to its update.

    `factor`: of the learning rate, by updates made. Weights stay in the trainer's tiers: `whole` brings them together.
    """

    def __init__(self, trainer: TieredTrainer, factor: Callable[[int], float]) -> None:
        self.trainer, self._factor = trainer, factor
        self._peaks = tuple(trainer.rates)
        self._times = StepTimes()

    @property
    def scaler(self) -> LossScale | None:
        return self.trainer.scaler

    @property
    def last_lr(self) -> float:
        """Learning rate of the last update, of the first parameter group."""
        return self._peaks[0] * self._factor(max(0, self.trainer.steps - 1))

    def first_bad_step(self) -> None:
        """The host knows after each step."""
        return

    def train(self, batch: StepBatch, device: torch.device) -> tuple[torch.Tensor, Update]:
        """One step; (its mean loss, what became of it)."""
        micros = [micro.to(device) for micro in batch.micro_batches]
        factor = self._factor(self.trainer.steps)
        result = self.trainer.step(micros, rates=[peak * factor for peak in self._peaks], number=batch.step)
        self._times.add(result.seconds)
        finite = result.applied or result.overflow
        outcome = Update(torch.tensor(result.norm, device=device), applied=result.applied, finite=finite)
        return torch.tensor(result.loss, device=device), outcome

    def silent(self) -> list[str]:
        """Parameters that got no gradient in the last step."""
        homes = self.trainer.assembly.homes
        return [slot.name for home in homes for slot in home.layout.slots if slot.index in home.absent]

    def terms(self) -> dict[str, float | None]:
        """Seconds of a step by term, measured (medians), and what a replay of the executed schedule makes of them.

        `replayed_waiting_s`: with this machine's measured rates and the measured computing, what the schedule waits.
        """
        found = self._times.medians()
        if found is None:
            return {}
        forward_s = found.forward_s + found.loss_s / 3.0  # a head is computed once forward, twice backward
        replayed = replay_seconds(
            self.trainer.schedule, speeds_here(), forward_s=forward_s, backward_s=found.compute_s - forward_s
        )
        return {
            "compute_s": found.compute_s,
            "waiting_s": found.waiting_s,
            **asdict(found),
            "replayed_waiting_s": replayed.exposed_s,
            "replayed_update_s": replayed.update_s,
            "replayed_stream_s": replayed.stream_s,
            "replayed_nvme_s": replayed.nvme_s,
        }

    @contextmanager
    def whole(self) -> Iterator[None]:
        """The model complete, for evaluation."""
        with self.trainer.evaluating():
            yield

    def adopt_weights(self) -> None:
        """Inside `whole`: what was just set in the units around the blocks is what training starts from."""
        homes, parts = self.trainer.assembly.homes, self.trainer.assembly.parts
        for unit in (0, len(homes) - 1):
            parts.weights.write_back(unit, parts.lanes.compute_mark())

    def capture(self, *, trainable_only: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """(tensors by file, meta) for a checkpoint."""
        return capture_tiers(self.trainer, trainable_only=trainable_only)

    def restore(self, files: Mapping[str, Mapping[str, torch.Tensor]], meta: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's tensors."""
        restore_tiers(self.trainer, files, meta)

    def load_weights(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Weights alone, of the best checkpoint, to be scored and exported."""
        load_weights(self.trainer, tensors)

    def finish(self) -> None:
        """Training is over: the model stands alone in ordinary memory, the tiers are given back."""
        self.trainer.release()


def open_tiers(
    model: torch.nn.Module,
    job: Job,
    config: RunConfig,
    planned: TierSchedule | None,
    *,
    objective: Any,
    groups: Sequence[Mapping[str, Any]],
    factor: Callable[[int], float],
    device: torch.device,
    longest_tokens: int,
    probe: Mapping[str, torch.Tensor],
    autocast: Callable[[], AbstractContextManager[Any]],
    scaler: LossScale | None,
    folder: Path,
    notice: Callable[[str], None],
) -> TieredUpdater:
    """The trainer of a job. `planned`: the plan's schedule, executed as it is where it is of this model's units, else
    its shares over them. `longest_tokens`: padded ones of the fullest micro-batch. `probe`: inputs of one sample.
    `folder`: of scratch files.

    Raises RunError ST467 for an optimizer other than AdamW, ST460 to ST466.
    """
    _require_adamw(job)
    here = job.hardware
    budgets = TierBudgets(
        hbm_bytes=_bytes(here.hbm_gb) or 1 << 62,
        dram_bytes=_bytes(here.dram_gb),
        nvme_bytes=_bytes(here.nvme.gb) if here.nvme else None,
    )
    _cap(device, here.hbm_gb)
    micro_batches = -(-job.train.global_batch_size // config.micro_batch_size)
    boundary = boundary_bytes(model, longest_tokens)
    trainer = TieredTrainer(
        model,
        param_groups=groups,
        max_grad_norm=job.train.max_grad_norm,
        loss=objective.loss_sum,
        weight=lambda micro: micro.weight,
        device=device,
        schedule=lambda specs: (
            (as_planned(specs, planned, micro_batches=micro_batches) if planned else None)
            or schedule_of(specs, config.tiers or _ENGINE, micro_batches, speeds_here())
        ),
        budgets=budgets,
        micro_batches=micro_batches,
        boundary_bytes=boundary,
        nvme_dir=_flash_folder(job, folder),
        seed=job.train.seed,
        autocast=autocast,
        scaler=scaler,
        probe=probe,
        notice=notice,
    )
    notice(_summary(trainer))
    return TieredUpdater(trainer, factor)


def _require_adamw(job: Job) -> None:
    if job.train.optimizer != "adamw":
        raise RunError(
            "ST467",
            _("the tier engine updates with AdamW, not {name}").format(name=job.train.optimizer),
            place="train.optimizer",
            fix=_("use train.optimizer: adamw, or run.placement: hbm"),
        )


def _summary(trainer: TieredTrainer) -> str:
    """What lies where, and what a step writes to flash, in one line."""
    homes, schedule = trainer.assembly.homes, trainer.schedule
    sizes = tier_sizes(homes, schedule)
    written = sum(home.layout.state_bytes for home in homes if home.flash_state is not None)
    written += sum(home.layout.trainable_bytes for home in homes if home.flash_weights is not None)
    text = _("tiers: {hbm} stay on the device, {dram} lie in host memory, {nvme} on flash").format(
        hbm=format_bytes(sizes.hbm), dram=format_bytes(trainer.assembly.host_bytes), nvme=format_bytes(sizes.nvme)
    )
    if not written:
        return text
    return text + "; " + _("each step writes {written} to flash").format(written=format_bytes(written))


def schedule_of(specs: Sequence[UnitSpec], shares: TierShares, micro_batches: int, speeds: LinkSpeeds) -> TierSchedule:
    """The plan's shares over the engine's own units; updates wait for the norm in the next forward."""
    schedule = TIERS.schedule(specs, shares, speeds, micro_batches=micro_batches)
    return replace(schedule, layer_major=True, deferred_update=True, exact_pinned=True)


def speeds_here() -> LinkSpeeds:
    """What `stoker doctor` and `bench` measured of this machine, typical figures where they did not."""
    rates = kept_rates()
    if rates is None:
        return TYPICAL
    return replace(
        TYPICAL,
        to_device_bytes_per_s=rates.pcie_up_bytes_per_s or TYPICAL.to_device_bytes_per_s,
        from_device_bytes_per_s=rates.pcie_down_bytes_per_s or TYPICAL.from_device_bytes_per_s,
        dram_bytes_per_s=rates.ram_bytes_per_s or TYPICAL.dram_bytes_per_s,
        nvme_read_bytes_per_s=rates.disk_read_bytes_per_s or TYPICAL.nvme_read_bytes_per_s,
        nvme_write_bytes_per_s=rates.disk_write_bytes_per_s or TYPICAL.nvme_write_bytes_per_s,
    )


def boundary_bytes(model: Any, tokens: int) -> int:
    """Hidden states of `tokens` in the format of the weights."""
    config = model.config
    width = next((getattr(config, name) for name in ("hidden_size", "n_embd", "d_model") if hasattr(config, name)), 0)
    itemsize: int = max(p.element_size() for p in model.parameters())
    return int(width) * tokens * itemsize


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else round(gigabytes * 1e9)


def _cap(device: torch.device, hbm_gb: float | None) -> None:
    """The allocator may not take more than the job's cap, so that a small GPU's run is seen on a large one.

    Segments that grow in place leave 3 GB less of 24 unused (W1: 19.7 GB in use, 23.2 reserved).
    """
    if device.type != "cuda":
        return
    if not any(os.environ.get(name) for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")):
        _grow_in_place()
    if hbm_gb is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, hbm_gb * 1e9 / total), device)


def _grow_in_place() -> None:
    """The name of the call is not public and has changed: where it is missing, memory is a little less full."""
    for owner, name in (
        (torch._C, "_accelerator_setAllocatorSettings"),
        (torch.cuda.memory, "_set_allocator_settings"),
    ):
        call = getattr(owner, name, None)
        if call is not None:
            with suppress(RuntimeError):
                call("expandable_segments:True")
            return


def _flash_folder(job: Job, folder: Path) -> Path:
    if job.hardware.nvme is None:
        return folder
    return Path(job.base_dir) / job.hardware.nvme.dir
