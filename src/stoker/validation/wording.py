"""What the words of published tables mean in our terms: method, precision, optimizer, attention, recompute.

Tables say `bf16-true+bnb.nf4`, `amp_bf16`, `full (pretrain)`; each function reads one column and answers with names
of techniques, best first, of which `first_built` takes the first that exists. Words that no technique covers are a
`Gap`: the row is then reported as not scored, with the reason.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from stoker.core.job import Method
from stoker.core.measurement import Measurement
from stoker.core.run_config import Recompute
from stoker.core.stack import Stack
from stoker.techniques.lookup import Named


class Gap(Exception):
    """Why a row cannot be predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodWords:
    """The method, and what else the words said. `is_near`: only like the method (an adapter of another kind)."""

    method: Method
    recompute: Recompute | None = None
    packed: bool = False
    offloaded: bool = False
    is_near: bool = False


_CHANNELS_LAST: Final = re.compile(r"channels.last|nhwc|tensorflow|\btf[12]\b|keras|\bjax\b|\bxla\b")
_CHANNELS_FIRST: Final = re.compile(r"channels.first|contiguous format|(?<!n)nchw")
_QUANTISED: Final = re.compile(r"nf4|(?<!nv)(?<!mx)fp4|int-?4|gptq-?(int)?4|gptq$|gptq\b(?!.*8)|awq|4.?bit|w4a16")
_OTHER_QUANTISED: Final = re.compile(r"int-?8|8.?bit|aqlm|[236].?bit|hqq|eetq|quip")
_UNTOLD_STATE: Final = re.compile(
    r"galore|lisa|llamapro|llama pro|prefix|prompt|p-?tuning|badam|bitfit|lomo|freeze|apollo|longlora|reft|mezo"
)
_OTHER_TRAINING: Final = re.compile(r"\b(dpo|ppo|grpo|orpo|kto|rloo|simpo|rlhf|distil\w*|reward)\b")
_OTHER_ADAPTERS: Final = re.compile(
    r"adalora|adapter|ia3|boft|oft|loha|lokr|vera|fourierft|hra|miss|bone|randlora|road|shira|vblora|waveft|"
    r"ln_tuning|c3a|deft|delora|frod|glora|gralora|lily|peanut|psoft|pvera"
)
_NONE: Final = r"(?:no|none|false|off|0|disabled|without|w/o|n)"
_UNSAID: Final = re.compile(r"recipe|unstated|unknown|not stated|n/a|^[-?\s]*$|default")
_TOPIC: Final = re.compile(
    r"\b(?:gradient|grad|activation|act)[-_ ]?(?:checkpoint\w*|ckpt|recomp\w*)|\bcheckpoint\w*|\brecomp\w*|\b[ag]c\b"
)


def read_method(measurement: Measurement) -> MethodWords:
    """The tuning method. Raises Gap for one whose state nothing here counts."""
    words = measurement.method.casefold()
    quantised = f"{words} {measurement.precision.casefold()}"
    if _UNTOLD_STATE.search(words):
        raise Gap(f"method {measurement.method}: what it keeps is not modelled")
    if re.search(r"\(emb|modules_to_save|\+ ?emb", f"{words} {measurement.note.casefold()}"):
        raise Gap(f"method {measurement.method}: modules that learn in full beside adapters are not modelled")
    if _OTHER_TRAINING.search(words):
        raise Gap(f"method {measurement.method}: a second model or a rollout beside the one that learns")
    method, is_near = _method(words, quantised, measurement)
    return MethodWords(
        method=method,
        is_near=is_near,
        recompute=_recompute_of(_TOPIC.search(words), words),
        packed="packing" in words,
        offloaded="offload" in words,
    )


def _method(words: str, quantised: str, measurement: Measurement) -> tuple[Method, bool]:
    """(the method, whether the words only resemble it)."""
    if "dora" in words and ("q" in words.split("dora")[0][-2:] or _QUANTISED.search(quantised)):
        raise Gap(f"method {measurement.method} on {measurement.precision}: DoRA over 4 bits is not modelled")
    if re.search(r"q-?lora", words) or ("lora" in words and _QUANTISED.search(quantised)):
        if _OTHER_QUANTISED.search(quantised) and not _QUANTISED.search(quantised):
            raise Gap(f"method {measurement.method} on {measurement.precision}: this quantised format is not modelled")
        return "qlora", "nf4" not in quantised and not re.search(r"q-?lora", words)
    if _OTHER_QUANTISED.search(quantised) and "lora" in words:
        raise Gap(f"method {measurement.method} on {measurement.precision}: this quantised format is not modelled")
    if "dora" in words:
        return "dora", False
    if re.search(r"(^|[^a-z])(rs)?lora", words):
        return "lora", False
    if _OTHER_ADAPTERS.search(words):
        return ("qlora" if _QUANTISED.search(quantised) else "lora"), True
    if _QUANTISED.search(quantised) and not re.search(r"pretrain|scratch", words):
        return "qlora", True  # nothing tunes 4-bit weights in full: adapters that the table does not name
    if not words or re.search(r"full|pretrain|pre-train|sft|finetun|fine-?_?\s?tun|scratch|^(fft|ft|all)$", words):
        return "full", False
    raise Gap(f"method {measurement.method}: unknown")


def read_precision(measurement: Measurement, stack: Stack, method: Method) -> tuple[str, ...]:
    """Precisions that the column may mean, best first: bare 16-bit words mean what the stack means by them.

    Names of torch dtypes (`bfloat16`, `torch_dtype=...`) are of the weights as loaded; `bf16` and `fp16` are flags of
    trainers, which mix. Raises Gap for words that name no format.
    """
    words = measurement.precision.casefold()
    usual = stack.half_precision if method == "full" else stack.adapter_precision
    if not words or words == "auto" or _UNSAID.search(words):
        return (usual,)
    fp16 = re.search(r"fp16|float16|half|\b16-(mixed|true)|\bo[123]\b", words) and not re.search(
        r"bf16|bfloat16", words
    )
    if re.search(r"nvfp4|mxfp4|mxfp8|fp8|float8", words) or (method != "qlora" and re.search(r"(^|[^n])fp4", words)):
        return (usual,)  # the format of products is told apart: read_products
    if "tf32" in words:
        return ("tf32", "fp32")
    if re.search(r"\bo2\b", words):
        return ("fp16_amp",)  # apex: 16-bit weights beside fp32 masters, the bytes of mixed precision
    if re.search(r"pure|true|torch_dtype|weights (loaded )?(as|in) b?(f|float)", words) and "32" not in words:
        return ("fp16_pure", "bf16_pure") if fp16 else ("bf16_pure",)
    if re.search(r"amp|mixed|autocast|\bmp\b|\bo1\b", words):
        return ("fp16_amp",) if fp16 else ("bf16_amp",)
    if re.search(r"fp32 master", words) and "when" not in words:
        return ("bf16",)
    if re.fullmatch(r"(fp|float|f)?-?32(-true)?(-bit| bit)?|single( precision)?|full precision|no", words):
        return ("fp32",)
    if stack.is_guess and method == "full" and re.search(r"b?float16", words):
        return ("fp16_pure", "bf16_pure") if fp16 else ("bf16_pure",)
    if fp16:
        return (usual.replace("bf16", "fp16"), "fp16_amp")
    if re.search(r"bf16|bfloat16|nf4|fp4|int4|4.?bit|gptq|awq|8.?bit|int8|16", words):
        return (usual,)
    raise Gap(f"precision {measurement.precision}: not understood")


def leaves_weights_open(measurement: Measurement, stack: Stack, method: Method) -> bool:
    """Whether a bare 16-bit word of full tuning leaves open in what format an undescribed program holds weights."""
    words = measurement.precision.casefold()
    bare = re.fullmatch(r"(bf16|fp16|bfloat16|float16|half|16|16-bit)?", words)
    return bool(stack.is_guess and method == "full" and bare)


def reads_double_quant(measurement: Measurement) -> bool:
    """Whether the scales of 4-bit weights are quantised too."""
    words = f"{measurement.method} {measurement.precision} {measurement.note}".casefold()
    return bool(re.search(r"\bdq\b|-dq|double.?quant|nested.?quant", words))


def steps_as_told(stack: Stack, measurement: Measurement) -> Stack:
    """`stack` with how the row says that AdamW steps: in backward, or by a fused kernel, without transients."""
    words = f"{measurement.optimizer} {measurement.method} {measurement.note}".casefold()
    within = r"optimizer[ _-]?in[ _-]?(bwd|backward)|fused? (optimizer step )?into backward|step in backward"
    if re.search(within, words):
        stack = replace(stack, steps_in_backward=True)
    return replace(stack, foreach_step=False) if re.search(r"fused|apex", measurement.optimizer.casefold()) else stack


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


_UNTOLD_OPTIMIZERS: Final = re.compile(
    r"galore|lomo|badam|apollo|adam-?_?mini|sophia|shampoo|\bsoap|adan\b|\bcame\b|4.?bit|ademamix|lisa|fp8"
)
_ADAM_LIKE: Final = re.compile(r"adam|lamb|radam|nadam|anyprecision")


def read_optimizer(measurement: Measurement, method: Method) -> tuple[str, ...]:
    """Optimizers that the column may mean, best first; nothing said: AdamW. Raises Gap for one not modelled."""
    words = measurement.optimizer.casefold()
    if _UNTOLD_OPTIMIZERS.search(words):
        raise Gap(f"optimizer {measurement.optimizer}: its state is not modelled")
    if re.search(r"8.?bit|int8", words):
        if not _ADAM_LIKE.search(words):
            raise Gap(f"optimizer {measurement.optimizer}: its state is not modelled")
        return ("paged_adamw_8bit", "adamw_8bit") if "paged" in words else ("adamw_8bit", "adamw8bit")
    for name in ("muon", "adafactor", "sgd", "lion", "lamb"):
        if name in words and not (name == "lion" and "adam" in words):
            return (name, "sgd") if name == "sgd" else (name, "adamw")
    if words and not _ADAM_LIKE.search(words) and not _UNSAID.search(words):
        raise Gap(f"optimizer {measurement.optimizer}: not understood")
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
    """eager, sdpa or flash; the stack's own where the table is silent. Raises Gap for words that name no kernel."""
    words = measurement.attention.casefold().strip()
    if not words or _UNSAID.search(words):
        return stack.attention
    if words.startswith("eager") or re.match(rf"{_NONE}\b|math|naive|vanilla|standard", words):
        return "eager"
    if "sdpa" in words or "mem" in words or "xformers" in words:
        return "sdpa"
    if re.search(r"flash|fa[-_ ]?\d|\bfa\b|unsloth|te/|cudnn|triton|^(yes|true|1|on|y)\b|transformer.?engine", words):
        return "flash"
    raise Gap(f"attention {measurement.attention}: not understood")


def read_recompute(measurement: Measurement, stack: Stack) -> tuple[str, ...]:
    """Recomputations that the column may mean, best first; an empty column's answer may stand in the note.

    Raises Gap for a budgeted one, and for words that say neither yes nor no.
    """
    words = measurement.recompute.casefold().strip()
    if not words:
        note = measurement.note.casefold()
        said = _recompute_of(_TOPIC.search(note), note)
        return (said or stack.recompute,)
    if _UNSAID.search(words) and "fsdp-default" not in words:
        return (stack.recompute,)
    if "auto" in words or "budget" in words:
        raise Gap(f"recompute {measurement.recompute}: a compiler's memory budget is not modelled")
    if "offload" in words or words == "unsloth":
        return ("offloaded", "full_offload", "offload", "selective" if "sac" in words else "full")
    if re.search(r"sel|sac|per-op", words):
        return ("selective",)
    said = _recompute_of(_TOPIC.search(words), words)
    if said:
        return (said,)
    if re.match(rf"{_NONE}\b", words):
        return ("none",)
    if re.search(r"full|yes|true|^(on|1|y)\b|fsdp-default|block|uniform|layer|reentrant|enabled|unsloth", words):
        return ("full",)
    raise Gap(f"recompute {measurement.recompute}: not understood")


def _recompute_of(topic: re.Match[str] | None, words: str) -> Recompute | None:
    """What `words` say about their `topic`, gradient checkpointing: none where denied, full where named."""
    if topic is None:
        return None
    before, after = words[: topic.start()], words[topic.end() :]
    denied = re.search(rf"\b{_NONE}[\s_-]*$", before) or re.match(rf"[\s:=]*{_NONE}\b(?!\s*\w)", after)
    return "none" if denied else "full"


def as_told(stack: Stack, measurement: Measurement) -> Stack:
    """`stack` with what the table itself says about the program: how images lie in memory."""
    words = f"{measurement.table} {measurement.precision} {measurement.note}".casefold()
    if _CHANNELS_FIRST.search(words):
        return replace(stack, channels_last=False)
    return replace(stack, channels_last=True) if _CHANNELS_LAST.search(words) else stack


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
