"""Block inputs in host memory between a block's forward and its recomputation: the torch half of `offloaded`.

torch's checkpoint holds the arguments of a block; here it holds a slot instead, and the recomputation reads its input
from there. Values are all that a non-reentrant recomputation needs of an input: the graph is the forward's own.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def hold_inputs_on_host(model: nn.Module) -> "HostInputs":
    """`model`, whose recomputation is on, with the inputs of its blocks on the host from now on."""
    holder = HostInputs()
    for module in model.modules():
        if getattr(module, "_gradient_checkpointing_func", None) is not None:
            setattr(module, "_gradient_checkpointing_func", holder.checkpoint)  # noqa: B010
    return holder


class Slot:
    """One block's input: on the host, and again on its device once it was fetched."""

    def __init__(self, tensor: torch.Tensor, below: "weakref.ref[Slot] | None", stream: Any) -> None:
        self.below = below
        self._stream = stream
        self._device = tensor.device
        self._learns = tensor.requires_grad
        self._back: torch.Tensor | None = None
        value = tensor.detach()
        if stream is None:
            self.host = value.to("cpu", copy=True)
            return
        self.host = torch.empty(value.shape, dtype=value.dtype, device="cpu", pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self.host.copy_(value, non_blocking=True)
        value.record_stream(stream)

    def fetch(self) -> None:
        """Starts the copy back; does nothing when it has begun."""
        if self._back is not None:
            return
        if self._stream is None:
            self._back = self.host.to(self._device)
            return
        with torch.cuda.stream(self._stream):
            self._back = self.host.to(self._device, non_blocking=True)

    def take(self) -> torch.Tensor:
        """The input on its device; the slot lets go of it, and starts on the block below."""
        self.fetch()
        assert self._back is not None
        value, self._back = self._back, None
        if self._stream is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_stream(self._stream)
            value.record_stream(current)
        lower = self.below() if self.below is not None else None
        if lower is not None:
            lower.fetch()
        return value.requires_grad_(self._learns)


class HostInputs:
    """Stands in for torch's checkpoint in every block of one model. `last`: the newest slot."""

    def __init__(self) -> None:
        self.last: weakref.ref[Slot] | None = None
        self._streams: dict[torch.device, Any] = {}

    def checkpoint(self, block: Callable[..., Any], *args: Any) -> Any:
        """`block(*args)`, recomputed in backward from an input that waits on the host: the first argument."""
        if not args or not isinstance(args[0], torch.Tensor):
            return checkpoint(block, *args, use_reentrant=False)
        hidden, *rest = args
        slot = Slot(hidden, self.last, self._stream(hidden.device))
        self.last = weakref.ref(slot)
        once = [hidden]
        del hidden, args

        def run(_where: torch.Tensor, *others: Any) -> Any:
            return block(once.pop() if once else slot.take(), *others)

        # torch looks at the arguments for the device whose random state it must keep
        return checkpoint(run, torch.empty(0, device=once[0].device), *rest, use_reentrant=False)

    def _stream(self, device: torch.device) -> Any:
        if device.type != "cuda":
            return None
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device]
