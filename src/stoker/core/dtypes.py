"""Number formats and the bytes of one element."""

from typing import Final, Literal

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "nf4"]

BYTES_PER_ELEMENT: Final[dict[str, float]] = {
    "fp32": 4.0,
    "tf32": 4.0,  # a compute mode: storage stays fp32
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nf4": 0.5 + 4.0 / 64.0,  # packed nibble + one fp32 absmax per block of 64 (QLoRA, 2305.14314)
}
