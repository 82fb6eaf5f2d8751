"""What a row's note says beyond its columns: LoRA rank and targets, text lengths, accumulation, image size, factors."""

import ast
import math
import re
from collections.abc import Sequence
from typing import Final, Literal

from stoker.core.measurement import Measurement
from stoker.core.profile import LengthDistribution, lengths_declared
from stoker.core.stack import Stack

QKV: Final = ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "W_pack", "Wqkv", "qkv")
_Z99: Final = 2.3263  # 99 % point of a standard normal
Targets = Literal["all-linear", "attention"] | list[str]


def read_rank(measurement: Measurement, stack: Stack) -> int:
    """`r=32`, `r8`, `rank 16`; else the stack's default."""
    found = re.search(r"(?:^|[^a-z\d])(?:r|rank)[\s=:]*(\d+)(?![\d.])", measurement.note.casefold())
    return int(found[1]) if found and 0 < int(found[1]) <= 4096 else stack.lora_rank


def read_targets(measurement: Measurement, stack: Stack) -> Targets:
    """The linears with an adapter: a Python list after `targets=`, a word, or the stack's default."""
    note = measurement.note
    listed = re.search(r"targets=(\[[^\]]*\])", note)
    if listed:
        try:
            names = ast.literal_eval(listed[1])
        except (ValueError, SyntaxError):
            names = []
        if names and all(isinstance(name, str) for name in names):
            return list(names)
    words = note.casefold()
    if re.search(r"all[-_ ]linear|\blinear layers", words):
        return "all-linear"
    if re.search(r"\bc_attn\b", words):
        return list(QKV)
    return named_targets(stack.lora_targets)


def named_targets(words: str) -> Targets:
    """A stack's `lora_targets`: all-linear, attention, qkv, or names separated by `;`."""
    if words == "qkv":
        return list(QKV)
    if words == "all-linear" or words == "attention":
        return words  # type: ignore[return-value]
    return words.split(";")


def read_rounds(measurement: Measurement) -> int | None:
    """Micro-batches of one optimizer step where the note counts them."""
    found = re.search(r"(?:grad_accum|accumulation|micro_batches/step)\D{0,3}(\d+)", measurement.note.casefold())
    return int(found[1]) if found and int(found[1]) > 0 else None


def read_image_size(measurement: Measurement) -> int | None:
    """`img_size=224` or `224px`."""
    found = re.search(r"img_size=(\d+)|\b(\d{2,4})\s?px", measurement.note.casefold())
    return int(found[1] or found[2]) if found else None


def read_lengths(measurement: Measurement) -> LengthDistribution | None:
    """Lengths that the note describes by mean, deviation and longest; None where it does not."""
    found = re.search(r"tokens mean (\d+)\D+?std (\d+).*?max (\d+)", measurement.note.casefold())
    if not found:
        return None
    mean, deviation, longest = (float(group) for group in found.groups())
    return lengths_from_moments(mean, deviation, longest) if mean > 0 else None


def lengths_from_moments(mean: float, deviation: float, longest: float) -> LengthDistribution:
    """A log-normal of that mean and standard deviation, ending at `longest`."""
    sigma = math.sqrt(math.log1p((deviation / mean) ** 2))
    p99 = mean * math.exp(_Z99 * sigma - sigma * sigma / 2.0)
    return lengths_declared(mean, min(p99, longest), max(longest, mean))


def dropped_beyond(lengths: LengthDistribution, limit: float) -> LengthDistribution:
    """`lengths` without the samples longer than `limit`."""
    kept = [q for q in (lengths.quantile(i / 2000.0) for i in range(2001)) if q <= limit]
    if not kept or kept[-1] == lengths.maximum:
        return lengths.truncated(limit)
    return _from_samples(kept)


def _from_samples(ordered: Sequence[float]) -> LengthDistribution:
    last = len(ordered) - 1
    grid = tuple(ordered[round(i * last / 200)] for i in range(201))
    return LengthDistribution(quantiles=grid, mean=sum(ordered) / len(ordered))
