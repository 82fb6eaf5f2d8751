"""fitcheck-llm: `estimator.estimate` over the config that its own parser reads.

It fetches config.json from the hub, or from the local cache with HF_HUB_OFFLINE, which is made here. Its check of the
parameter count against the hub gets the published count, so it refuses the models that it would refuse online. Its
parts say what they are: allocated = all but overhead, reserved = total less the CUDA context, process = total.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from serve import NotOffered, answer, need_batch, need_method, need_recompute, need_shape, need_strategy

_cache = tempfile.TemporaryDirectory()
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_CACHE=_cache.name)

from fitcheck import config_parser  # noqa: E402  the cache's place is read at import
from fitcheck.estimator import TrainingConfig, estimate  # noqa: E402
from fitcheck.gpu_db import get_gpu, gpu_key_for  # noqa: E402
from fitcheck.memory.lora import LORA_TARGETS_FULL, LORA_TARGETS_MINIMAL, LORA_TARGETS_STANDARD  # noqa: E402
from fitcheck.overhead_db import get_overhead_profile  # noqa: E402

_TARGETS = {"query_value": LORA_TARGETS_MINIMAL, "attention": LORA_TARGETS_STANDARD, "all_linear": LORA_TARGETS_FULL}
_GPUS = (("T4", "t4"), ("A100-40", "a100-40"), ("A100-80", "a100-80"), ("A10G", "a10"), ("L40S", "l40s"),
         ("RTX-A6000", "a6000"), ("H100-80", "h100-80"), ("H200", "h200"), ("B200", "b200"))  # fmt: skip
_QUANT = {"none": "none", "nf4": "nf4", "nf4-dq": "nf4", "int4": "nf4", "int8": "int8"}


def predict(case: dict[str, Any]) -> float:
    need_shape(case)
    need_strategy(case, "single")
    method = need_method(case, "full", "lora", "qlora")
    batch, seq_len = need_batch(case)
    need_recompute(case)
    if case["quant"] not in _QUANT:
        raise NotOffered(f"no quantisation {case['quant']}")
    training = TrainingConfig(
        precision=case["weights"] if method == "full" else case["compute"],
        quantization=_QUANT[case["quant"]],
        double_quant=case["quant"] == "nf4-dq",
        optimizer="adamw",
        optimizer_dtype="bf16" if method == "full" and case["weights"] == "bf16" else "fp32",
        batch_size=batch,
        seq_len=seq_len,
        lora_rank=case["lora_rank"],
        lora_targets=list(_TARGETS[case["lora_targets"] or "attention"]),
        grad_checkpoint=case["recompute"] == "full",
        flash_attn=case["attention"] == "flash",
    )
    known = next((key for name, key in _GPUS if case["gpu"].startswith(name)), None)
    gpu = get_gpu(known) if known else get_gpu(case["gpu"], vram_mib=int(case["gpu_mem_gb"] * 1024))
    report = estimate(_config(case), training, gpu)
    context = get_overhead_profile(gpu_key_for(gpu), training.flash_attn, training.quantization).base_context_mib
    less = {"allocated": report.overhead_mib, "reserved": context, "process": 0.0}[case["quantity"]]
    return (report.total_mib - less) * 2**20


def _config(case: dict[str, Any]) -> config_parser.ModelConfig:
    repo = "peers/" + "".join(c if c.isalnum() else "-" for c in case["model"])
    snapshot = Path(_cache.name, "models--" + repo.replace("/", "--"), "snapshots", "0" * 40)
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
    refs = snapshot.parents[1] / "refs"
    refs.mkdir(exist_ok=True)
    (refs / "main").write_text("0" * 40, encoding="utf-8")
    config_parser._reported_param_count = lambda _model, _token: case["params"]
    return config_parser.fetch_model_config(repo)


if __name__ == "__main__":
    answer(predict, ("fitcheck-llm",))
