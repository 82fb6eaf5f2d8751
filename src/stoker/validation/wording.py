"""What the words of published tables mean in our terms: method, precision, optimizer, attention, recompute.

Tables say `bf16-true+bnb.nf4`, `amp_bf16`, `full (pretrain)`; each function reads one column and answers with names
of techniques, best first, of which `first_built` takes the first that exists. Words that no technique covers are a
`Gap`: the row is then reported as not scored, with the reason.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stoker.core.job import Method
from stoker.core.measurement import Measurement
from stoker.core.stack import Stack
from stoker.techniques.lookup import Named


class Gap(Exception):
    """Why a row cannot be predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodWords:
    """The method, and what else the words said. `is_near`: only like the method (an adapter of another kind)."""

    method: Method
    recompute: str | None = None
    packed: bool = False
    offloaded: bool = False
    is_near: bool = False


_QUANTISED: Final = re.compile(r"nf4|int4|gptq-?int4|awq|4.?bit")
_OTHER_QUANTISED: Final = re.compile(r"int8|8.?bit|aqlm|2.?bit|hqq|eetq")
_UNTOLD_STATE: Final = re.compile(r"galore|lisa|llamapro|prefix|prompt|p-?tuning|badam|bitfit")
_OTHER_ADAPTERS: Final = re.compile(
    r"adalora|adapter|ia3|boft|oft|loha|lokr|vera|fourierft|hra|miss|bone|randlora|road|shira|vblora|waveft|"
    r"ln_tuning|c3a|deft|delora|frod|glora|gralora|lily|peanut|psoft|pvera"
)


def read_method(measurement: Measurement) -> MethodWords:
    """The tuning method. Raises Gap for one whose state nothing here counts."""
    words = measurement.method.casefold()
    quantised = f"{words} {measurement.precision.casefold()}"
    if _UNTOLD_STATE.search(words):
        raise Gap(f"method {measurement.method}: what it keeps is not modelled")
    method, is_near = _method(words, quantised, measurement)
    return MethodWords(
        method=method,
        is_near=is_near,
        recompute="full" if "checkpoint" in words else None,
        packed="packing" in words,
        offloaded="offload" in words,
    )


def _method(words: str, quantised: str, measurement: Measurement) -> tuple[Method, bool]:
    """(the method, whether the words only resemble it)."""
    if "qlora" in words or ("lora" in words and _QUANTISED.search(quantised)):
        return "qlora", "nf4" not in quantised and "qlora" not in words
    if _OTHER_QUANTISED.search(quantised) and "lora" in words:
        raise Gap(f"method {measurement.method} on {measurement.precision}: this quantised format is not modelled")
    if "dora" in words:
        return "dora", False
    if re.search(r"(^|[^a-z])(rs)?lora", words):
        return "lora", False
    if _OTHER_ADAPTERS.search(words):
        return ("qlora" if _QUANTISED.search(quantised) else "lora"), True
    if not words or re.search(r"full|pretrain|sft|finetun|fine-tun|scratch", words):
        return "full", False
    raise Gap(f"method {measurement.method}: unknown")


def read_precision(measurement: Measurement, stack: Stack, method: Method) -> tuple[str, ...]:
    """Precisions that the column may mean, best first: bare 16-bit words mean what the stack means by them."""
    words = measurement.precision.casefold()
    usual = stack.half_precision if method == "full" else stack.adapter_precision
    fp16 = re.search(r"fp16|float16|half", words) and not re.search(r"bf16|bfloat16", words)
    if re.search(r"nvfp4|mxfp4|(^|[^n])fp4", words):
        return (usual,)  # the format of products is told apart: read_products
    if re.search(r"fp8|float8", words):
        return (usual,)
    if re.search(r"tf32", words):
        return ("tf32", "fp32")
    if re.search(r"pure|true", words):
        return ("fp16_pure", "fp16_amp") if fp16 else ("bf16_pure",)
    if re.search(r"amp|mixed|autocast", words):
        return ("fp16_amp",) if fp16 else ("bf16_amp",)
    if re.search(r"fp32 master", words) and "when" not in words:
        return ("bf16",)
    if fp16:
        return (usual.replace("bf16", "fp16"), "fp16_amp")
    if re.fullmatch(r"(fp|float)32", words):
        return ("fp32",)
    return (usual,)


def read_products(measurement: Measurement) -> str:
    """The format of matrix products where it is not that of the activations: tf32, fp8 or fp4; else ""."""
    words = measurement.precision.casefold()
    if re.search(r"nvfp4|mxfp4|(^|[^n])fp4", words):
        return "fp4"
    if re.search(r"fp8|float8", words):
        return "fp8"
    return "tf32" if "tf32" in words else ""


def reads_native_attention(measurement: Measurement) -> bool:
    """Whether the table names a fused attention of the GPU's own generation: FlashAttention 3 or 4, cuDNN."""
    return bool(re.search(r"flash_?attn?(ention)?[_ -]?[34]|fa[34]\b|cudnn|te/", measurement.attention.casefold()))


def read_optimizer(measurement: Measurement, method: Method) -> tuple[str, ...]:
    """Optimizers that the column may mean, best first; nothing said: AdamW."""
    words = measurement.optimizer.casefold()
    narrow = re.search(r"8.?bit", words)
    if narrow:
        return ("paged_adamw_8bit", "adamw_8bit") if "paged" in words else ("adamw_8bit", "adamw8bit")
    for name in ("muon", "adafactor", "sgd", "lion", "lamb"):
        if name in words and not (name == "lion" and "adam" in words):
            return (name, "sgd") if name == "sgd" else (name, "adamw")
    return ("adamw",)


_LOSSES: Final = (
    (r"\bliger\b(?!=none|=false)", "liger"),
    (r"cut[- ]cross[- ]entropy|\bcce\b", "cce"),
    (r"no full logits|fused chunked lm_head|chunked (?:cross[- ]entropy|loss|lm_head)", "chunked"),
)


def read_loss(measurement: Measurement, stack: Stack) -> str:
    """The loss kernel that the row names, else the stack's own."""
    words = f"{measurement.method} {measurement.precision} {measurement.note}".casefold()
    return next((name for pattern, name in _LOSSES if re.search(pattern, words)), stack.loss)


def read_attention(measurement: Measurement, stack: Stack) -> str:
    """eager, sdpa or flash; the stack's own where the table is silent."""
    words = measurement.attention.casefold()
    if words.startswith(("no", "eager", "math")):
        return "eager"
    if "sdpa" in words or "mem" in words:
        return "sdpa"
    if words.startswith("yes") or re.search(r"flash|fa\d|unsloth|te/|cudnn|triton", words):
        return "flash"
    return stack.attention


def read_recompute(measurement: Measurement, stack: Stack) -> tuple[str, ...]:
    """Recomputations that the column may mean, best first. Raises Gap for a budgeted one."""
    words = measurement.recompute.casefold()
    if "auto" in words or "budget" in words:
        raise Gap(f"recompute {measurement.recompute}: a compiler's memory budget is not modelled")
    if "offload" in words:
        return ("offloaded", "full_offload", "offload", "selective" if "sac" in words else "full")
    if re.search(r"sel|sac|per-op", words):
        return ("selective",)
    if re.search(r"^(no|none|false|off|0)$", words):
        return ("none",)
    if re.search(r"full|yes|true|^on$|fsdp-default|block|uniform", words):
        return ("full",)
    return (stack.recompute,)


def reads_compile(measurement: Measurement, stack: Stack) -> bool:
    """Whether the step was compiled: by the precision's or note's words, else as the stack does."""
    words = f"{measurement.precision} {measurement.note}".casefold()
    if re.search(r"\beager\b", measurement.precision.casefold()):
        return False
    return "compile" in words or stack.capture == "compile"


def first_built(kind: str, names: Iterable[str], built: Iterable[Named]) -> str:
    """The first of `names` that a technique has. Raises Gap when none is built."""
    wanted = tuple(names)
    known = {technique.name for technique in built}
    for name in wanted:
        if name in known:
            return name
    raise Gap(f"{kind} {wanted[0]}: not modelled")
