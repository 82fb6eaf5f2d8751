"""Hugging Face accelerate, `accelerate estimate-memory`: the command's own arithmetic over a model built on `meta`.

The command itself asks the hub for every model, so it cannot run offline; what it does after that is called here:
`calculate_maximum_sizes`, then `estimate_training_usage`. Full tuning: "Training using Adam" (the largest of its four
figures, as the command prints it). LoRA and QLoRA: it knows no adapters, so its "Total Size" in the format in which
the base is stored, which is the best that its user can take from it.
"""

from typing import Any

import transformers
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from serve import NotOffered, answer, need_method, need_shape, need_strategy

_SHARE_OF_FP32 = {"fp32": 1.0, "fp16": 0.5, "bf16": 0.5, "int8": 0.25, "nf4": 0.125, "nf4-dq": 0.125, "int4": 0.125}
_TRAINING = {"fp32": "float32", "fp16": "float16", "bf16": "float16"}
_sizes: dict[str, int] = {}


def predict(case: dict[str, Any]) -> float:
    need_shape(case)
    need_strategy(case, "single", "ddp")
    method = need_method(case, "full", "lora", "qlora")
    if case["tp"] > 1:
        raise NotOffered("no sharding")
    size = _fp32_bytes(case)
    if method == "full":
        return float(max(estimate_training_usage(size, _TRAINING[case["weights"]]).values()))
    stored = case["weights"] if case["quant"] == "none" else case["quant"]
    if stored not in _SHARE_OF_FP32:
        raise NotOffered(f"no format {stored}")
    return size * _SHARE_OF_FP32[stored]


def _fp32_bytes(case: dict[str, Any]) -> int:
    if case["model"] not in _sizes:
        values = {key: value for key, value in case["config"].items() if key != "model_type"}
        config = transformers.AutoConfig.for_model(case["config"]["model_type"], **values)
        with init_empty_weights():
            model = transformers.AutoModelForCausalLM.from_config(config, dtype="float32")
        _sizes[case["model"]] = calculate_maximum_sizes(model)[0]
    return _sizes[case["model"]]


if __name__ == "__main__":
    answer(predict, ("accelerate", "transformers", "torch"))
