"""Test doubles of the checkpoint port: a disk that fails, and states that look like training ones."""

import errno
import os
from pathlib import Path

import torch

from stoker.engine.checkpoint import FreeSpace, LocalStorage


class FaultyStorage(LocalStorage):
    """The real file system, but the n-th call (from 1) of one kind fails, or writes are short, or the disk is small."""

    def __init__(
        self, kind: str = "", nth: int = 0, error: int = errno.ENOSPC, *, short: int = 0, free: FreeSpace | None = None
    ) -> None:
        self.kind, self.nth, self.error, self.short, self.free = kind, nth, error, short, free
        self.calls: list[str] = []

    def _count(self, kind: str) -> None:
        self.calls.append(kind)
        if kind == self.kind and self.calls.count(kind) == self.nth:
            raise OSError(self.error, os.strerror(self.error))

    def make_dir(self, path: Path) -> None:
        self._count("make_dir")
        super().make_dir(path)

    def create(self, path: Path) -> int:
        self._count("create")
        return super().create(path)

    def write(self, descriptor: int, data: memoryview) -> int:
        self._count("write")
        return super().write(descriptor, data[: self.short] if self.short else data)

    def fsync(self, descriptor: int) -> None:
        self._count("fsync")
        super().fsync(descriptor)

    def fsync_dir(self, path: Path) -> None:
        self._count("fsync_dir")
        super().fsync_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        self._count("rename")
        super().rename(source, target)

    def remove_tree(self, path: Path) -> None:
        self._count("remove_tree")
        super().remove_tree(path)

    def free_space(self, path: Path) -> FreeSpace:
        return self.free or super().free_space(path)


def training_files(step: int, size: int = 2000) -> dict[str, dict[str, torch.Tensor]]:
    """Weights and optimizer tensors that are a function of `step` alone."""
    generator = torch.Generator().manual_seed(step)
    weight = torch.randn(size, generator=generator)
    return {
        "model": {"layer.weight": weight.reshape(-1, 10), "layer.bias": weight[:3].to(torch.bfloat16)},
        "optimizer": {"state.0.exp_avg": weight * 0.5, "state.0.step": torch.tensor(float(step))},
    }


def same_files(loaded: dict[str, dict[str, torch.Tensor]], step: int, size: int = 2000) -> bool:
    """Whether every bit, dtype and shape is that of `training_files(step)`."""
    expected = training_files(step, size)
    return loaded.keys() == expected.keys() and all(
        loaded[file].keys() == tensors.keys()
        and all(
            loaded[file][name].dtype == tensor.dtype
            and loaded[file][name].shape == tensor.shape
            and loaded[file][name]
            .contiguous()
            .reshape(-1)
            .view(torch.uint8)
            .equal(tensor.contiguous().reshape(-1).view(torch.uint8))
            for name, tensor in tensors.items()
        )
        for file, tensors in expected.items()
    )
