"""Tiny models, batches, placements and doubles of lanes and disk for the tests of the tier engine."""

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from stoker.core.schedule import TierSchedule, UnitPlacement, UnitSpec
from stoker.engine.tiers import TieredTrainer
from stoker.engine.tiers.nvme import LocalFlash
from stoker.engine.tiers.placing import all_on_device

VOCAB, ROWS, LENGTH, HIDDEN = 96, 2, 12, 32
BOUNDARY_BYTES = ROWS * LENGTH * HIDDEN * 4
PIECE_BYTES = 1 << 15  # several pieces a unit


def llama(*, tied: bool = True, dropout: float = 0.0, dtype: torch.dtype = torch.bfloat16, layers: int = 3) -> Any:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied, attention_dropout=dropout, initializer_range=0.1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).to(dtype)


def bert(*, dropout: float = 0.0, dtype: torch.dtype = torch.bfloat16) -> Any:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=32, num_labels=3, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        initializer_range=0.1,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).to(dtype)


def lora(base: Any, *, dropout: float = 0.0) -> Any:
    """fp32 adapters on every linear of the blocks, what they stand on frozen."""
    import peft

    torch.manual_seed(2)
    settings = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules="all-linear")
    model = peft.get_peft_model(base, settings)
    for name, param in model.named_parameters():
        if "lora_" in name:
            param.data = param.data.float()
            torch.nn.init.normal_(param.data, std=0.05)
    return model


def batches(step: int, count: int) -> list[dict[str, torch.Tensor]]:
    """Micro-batches with unequal numbers of unmasked tokens."""
    draw = torch.Generator().manual_seed(step)
    found = []
    for index in range(count):
        ids = torch.randint(0, VOCAB, (ROWS, LENGTH), generator=draw)
        labels = ids.clone()
        labels[:, : 3 + index] = -100
        found.append({"input_ids": ids, "labels": labels})
    return found


def class_batches(step: int, count: int) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(step)
    return [
        {
            "input_ids": torch.randint(0, VOCAB, (ROWS, LENGTH), generator=draw),
            "attention_mask": torch.cat([torch.ones(ROWS, LENGTH - 2 - i), torch.zeros(ROWS, 2 + i)], dim=1).long(),
            "targets": torch.randint(0, 3, (ROWS,), generator=draw),
        }
        for i in range(count)
    ]


def class_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return torch.nn.functional.cross_entropy(logits.float(), batch["targets"], reduction="sum")


def place(**parts: Any) -> Callable[[Sequence[UnitSpec]], TierSchedule]:
    """A maker of schedules in which every unit has the same places; `lane` gpu_stream or cpu; `mixed` turns by unit."""
    options = {key: parts.pop(key) for key in ("prefetch_units", "ring_pieces", "staging_pieces", "deferred_update")
               if key in parts}  # fmt: skip
    lane, mixed = parts.pop("lane", "gpu_stream"), parts.pop("mixed", False)

    def make(specs: Sequence[UnitSpec]) -> TierSchedule:
        base = all_on_device(specs, 1)
        placements = []
        for index, (unit, default) in enumerate(zip(specs, base.placements, strict=True)):
            own = {k: v for k, v in parts.items() if not mixed or index % 2}
            chosen = lane if not mixed or index % 3 else "gpu_stream"
            update = default.update if not unit.trainable_params or (chosen != "cpu" and "state" not in own) else chosen
            if update == "cpu" and own.get("state", "hbm") == "hbm":
                own["state"] = "dram"
            placements.append(UnitPlacement(unit=unit.name, update=update, **own))
        return dataclasses.replace(base, placements=tuple(placements), **{"piece_bytes": PIECE_BYTES, **options})

    return make


PLACEMENTS: dict[str, Callable[[Sequence[UnitSpec]], TierSchedule]] = {
    "all on the device": place(),
    "state in DRAM": place(state="dram"),
    "state and gradients in DRAM": place(state="dram", gradients="dram"),
    "inputs in DRAM": place(activations="dram"),
    "everything in DRAM": place(weights="dram", gradients="dram", state="dram", activations="dram"),
    "one unit ahead": place(weights="dram", gradients="dram", state="dram", activations="dram", prefetch_units=1),
    "state on flash": place(weights="dram", gradients="dram", state="nvme", activations="dram"),
    "weights on flash too": place(weights="nvme", gradients="dram", state="nvme", activations="dram", staging_pieces=3),
    "weights streamed, state resident": place(weights="dram"),
    "updated in DRAM": place(state="dram", lane="cpu"),
    "updated in DRAM, weights streamed": place(state="dram", weights="dram", activations="dram", lane="cpu"),
    "updated in DRAM, state on flash": place(state="nvme", weights="dram", lane="cpu"),
    "every second unit": place(
        weights="dram", gradients="dram", state="nvme", activations="dram", lane="cpu", mixed=True
    ),
    "not deferred": place(state="dram", gradients="dram", deferred_update=False),
}


class LaggingLanes:
    """Lanes whose work runs as late as its marks allow, in an order drawn from `seed`: a missing wait shows.

    A mark's work runs when somebody waits for it, with all that stands before it in its lane; now and then some lane
    runs ahead on its own. Compute is the host's own thread and always at once.
    """

    def __init__(self, seed: int) -> None:
        self._lock = threading.RLock()
        self._draw = random.Random(seed)
        self.up, self.down, self.update = (_LaggingLane(self._lock) for _lane in range(3))

    def compute_mark(self) -> None:
        self._maybe_run()

    def compute_wait(self, mark: Any) -> None:
        if mark is not None:
            mark.synchronize()
        self._maybe_run()

    def drain(self) -> None:
        for lane in (self.up, self.down, self.update):
            lane.run(len(lane.work))

    def _maybe_run(self) -> None:
        lane = self._draw.choice((self.up, self.down, self.update))
        if self._draw.random() < 0.2:
            lane.run(self._draw.randint(0, len(lane.work)))


class _LaggingLane:
    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.work: list[tuple[Callable[[], None], tuple[Any, ...], _LaggingMark]] = []

    def submit(self, work: Callable[[], None], *, after: Iterable[Any] = (), uses: Sequence[Any] = ()) -> Any:
        with self._lock:
            mark = _LaggingMark(self)
            self.work.append((work, tuple(after), mark))
            return mark

    def run(self, count: int) -> None:
        with self._lock:
            for _item in range(min(count, len(self.work))):
                work, after, mark = self.work.pop(0)
                for earlier in after:
                    if earlier is not None:
                        earlier.synchronize()
                work()
                mark.done = True


class _LaggingMark:
    def __init__(self, lane: _LaggingLane) -> None:
        self._lane, self.done = lane, False

    def synchronize(self) -> None:
        with self._lane._lock:
            place = next((i for i, item in enumerate(self._lane.work) if item[2] is self), -1)
            self._lane.run(place + 1)
            assert self.done


class BadDisk(LocalFlash):
    """Fails (`errno`), shortens or delays its n-th call of `kind` and those after it."""

    def __init__(self, kind: str, nth: int, *, errno: int = 0, delay_s: float = 0.0, short: bool = False) -> None:
        self._kind, self._nth, self._errno, self._delay_s, self._short = kind, nth, errno, delay_s, short
        self._calls = 0

    def read(self, descriptor: int, data: memoryview, offset: int) -> int:
        return super().read(descriptor, self._meet("read", data), offset)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        return super().write(descriptor, self._meet("write", data), offset)

    def _meet(self, kind: str, data: memoryview) -> memoryview:
        if kind != self._kind:
            return data
        self._calls += 1
        if self._calls < self._nth:
            return data
        time.sleep(self._delay_s)
        if self._errno:
            raise OSError(self._errno, "injected")
        return data[:4096] if self._short else data


def train(
    model: Any,
    schedule: Any,
    folder: Path,
    *,
    steps: int,
    count: int = 1,
    make: Callable[[int, int], Any] = batches,
    first: int = 0,
    **options: Any,
) -> tuple[list[tuple[float, float]], dict[str, torch.Tensor], TieredTrainer]:
    """(loss and norm of each step, final weights by name, the trainer)."""
    options.setdefault("lr", 1e-2)
    trainer = TieredTrainer(model, schedule=schedule, nvme_dir=folder, boundary_bytes=BOUNDARY_BYTES, **options)
    found = []
    for step in range(first, first + steps):
        result = trainer.step(make(step, count))
        found.append((result.loss, result.norm))
    return found, weights_of(trainer), trainer


def weights_of(trainer: TieredTrainer) -> dict[str, torch.Tensor]:
    """Every parameter by name, wherever it lives, flash included."""
    trainer.flush()
    found = {}
    for home in trainer.assembly.homes:
        if home.flash_weights is not None:
            buffer = trainer.assembly.parts.weights.land(home.index)
            trainer.assembly.parts.lanes.drain()
            home.layout.bind(buffer)
        for slot in home.layout.slots:
            found[slot.name] = slot.param.detach().clone()
        for held in home.layout.frozen:
            found[held.name] = held.param.detach().clone()
        if home.flash_weights is not None:
            home.layout.unbind()
    trainer.assembly.parts.weights.park()
    return found


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Equal bit for bit."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and torch.equal(left[name].view(torch.uint8), right[name].view(torch.uint8))
        for name in left
    )
