"""Measured memory rows as cases that any peer can be asked: neutral words, SI units, one reading per run and quantity.

Reads the public schema (source, model, method, precision, ... , metric, value, unit, quality); knows no peer. A key is
None where the row does not say it. Shapes come from stoker's catalogue, so every peer sees the same config.json.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from stoker.catalogue.models.published import PublishedModel, find_published

GIB = 2**30
# Adapters that hold what LoRA holds: frozen base, small trained matrices of AdamW. Other methods are no peer's.
_LIKE_LORA = re.compile(r"^(lora|dora|rslora|adalora|lora\+)\b")
_INT4 = ("gptq-int4", "awq")
_INT8 = ("gptq-int8",)


def read_cases(path: Path) -> list[dict[str, Any]]:
    """Every scored reading of peak memory in `path`; several readings of one run and quantity become their median."""
    groups: dict[tuple[str, ...], list[tuple[int, dict[str, str]]]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.DictReader(stream)):
            if row["metric"] == "peak_mem_gb" and row["quality"] != "suspect":
                groups.setdefault(_run_key(row), []).append((number, row))
    return [_case(members) for members in groups.values()]


def _run_key(row: Mapping[str, str]) -> tuple[str, ...]:
    what = ("source", "model", "method", "precision", "optimizer", "gpu", "n_gpus", "strategy", "micro_batch")
    how = ("global_batch", "seq_len", "act_ckpt", "flash_attn")
    notes = re.sub(r"; (role|ts|cuda_context_mib|reserved_avg)=[^;]*", "", row["notes"])
    return (*(row[name] for name in (*what, *how)), notes, quantity_of(row["unit"]))


def quantity_of(unit: str) -> str:
    """allocated, reserved or process; a bare GB or GiB means reserved."""
    text = unit.lower()
    if "allocated" in text or "active" in text:
        return "allocated"
    return "process" if "process" in text or "smi" in text else "reserved"


def _case(members: list[tuple[int, dict[str, str]]]) -> dict[str, Any]:
    row = members[0][1]
    scale = GIB if row["unit"].startswith("GiB") else 10**9
    model = find_published(row["model"], _count(row["params"]))
    method, quant = _method(row)
    return {
        "rows": [number for number, _row in members],
        "source": row["source"],
        "gpu": row["gpu"],
        "gpu_mem_gb": float(row["gpu_mem_gb"]) if row["gpu_mem_gb"] else None,
        "quantity": quantity_of(row["unit"]),
        "measured_bytes": median(float(member["value"]) for _number, member in members) * scale,
        "model": row["model"],
        **_shape(model, row),
        "method": method,
        "quant": quant,
        **_lora(row, method),
        **_formats(row, method),
        "micro_batch": _count(row["micro_batch"]),
        "seq_len": _count(row["seq_len"]),
        "recompute": _recompute(row["act_ckpt"]),
        "attention": _attention(row["flash_attn"]),
        **_parallel(row),
    }


def _count(text: str) -> int | None:
    return int(float(text)) if text else None


def _shape(model: PublishedModel | None, row: Mapping[str, str]) -> dict[str, Any]:
    """The model's own config, and its sizes under the names of Llama's config."""
    if model is None or model.kind != "causal_lm" or str(model.config["model_type"]).endswith("t5"):
        return {"config": None, "arch": None, "params": _count(row["params"])}
    config = dict(model.config)

    def first(*names: str, default: Any = None) -> Any:
        return next((config[name] for name in names if config.get(name) is not None), default)

    hidden, heads = (
        first("hidden_size", "n_embd", "d_model"),
        first("num_attention_heads", "n_head", "n_heads", "num_heads"),
    )
    arch = {
        "hidden_size": hidden,
        "num_hidden_layers": first("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": 1
        if config.get("multi_query")
        else first("num_key_value_heads", "multi_query_group_num", default=heads),
        "head_dim": first("head_dim", default=hidden // heads),
        "intermediate_size": first("intermediate_size", "ffn_hidden_size", "n_inner", default=4 * hidden),
        "vocab_size": first("vocab_size", "padded_vocab_size"),
        "max_position_embeddings": first(
            "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=2048
        ),
        "tie_word_embeddings": bool(first("tie_word_embeddings", default=False)),
        "num_experts": first("num_experts", "num_local_experts", "n_routed_experts"),
        "num_experts_per_tok": first("num_experts_per_tok"),
        "moe_intermediate_size": first("moe_intermediate_size"),
    }
    return {"config": config, "arch": arch, "params": model.arch().num_params}


def _method(row: Mapping[str, str]) -> tuple[str, str]:
    """(full, lora, qlora or the table's own word; none, nf4, nf4-dq, int4, int8 or other)."""
    method, precision = row["method"].lower(), row["precision"].lower()
    quant = "none"
    if "nf4-dq" in precision:
        quant = "nf4-dq"
    elif "nf4" in precision:
        quant = "nf4"
    elif any(word in method or word in precision for word in _INT4):
        quant = "int4"
    elif any(word in method or word in precision for word in _INT8):
        quant = "int8"
    elif "aqlm" in precision:
        quant = "other"
    if method.startswith("qlora"):
        return "qlora", quant
    if _LIKE_LORA.match(method) and "offload" not in method:
        return ("lora" if quant == "none" else "qlora"), quant
    is_full = re.match(r"^full(-finetuning)?( \((rl|sft) trainer\)| \(pretrain\)|\+no_mix)?$", method)
    return ("full" if is_full else row["method"]), quant


def _lora(row: Mapping[str, str], method: str) -> dict[str, Any]:
    """Rank and targets: as noted, else that source's default (LitGPT r 8 tutorials, r 32 config_hub; ms-swift r 8)."""
    if method not in ("lora", "qlora"):
        return {"lora_rank": None, "lora_targets": None}
    notes = row["notes"]
    stated = re.search(r"\br=?(\d+)\b", notes)
    rank = int(stated[1]) if stated else 32 if "config_hub" in row["path_or_table"] else 8
    if "gate_proj" in notes or "all-linear" in notes.lower() or "prime-rl" in row["source"]:
        targets = "all_linear"
    elif "o_proj" in notes:
        targets = "attention"
    else:
        targets = "query_value"
    return {"lora_rank": rank, "lora_targets": targets}


def _formats(row: Mapping[str, str], method: str) -> dict[str, Any]:
    """Stored weights, compute, and whether the optimizer works on fp32 parameters."""
    precision = row["precision"].lower()
    compute = "fp16" if "fp16" in precision else "bf16"
    masters = method == "full" and ("fp32 master" in precision or "fp32 params" in row["optimizer"])
    mixed = "mixed" in precision or masters
    return {"weights": "fp32" if mixed else compute, "compute": compute, "optimizer": row["optimizer"].split(" ")[0]}


def _recompute(text: str) -> str | None:
    if text in ("none", "selective", "full"):
        return text
    return {"full+offload": "full", "fsdp-default": "none", "": "none"}.get(text)


def _attention(text: str) -> str:
    return "eager" if text in ("eager", "no", "none") else "flash"


def _parallel(row: Mapping[str, str]) -> dict[str, Any]:
    """Degrees; `strategy` single, ddp, zero2, zero3 (FSDP too), layers (naive device_map) or other."""
    text, gpus = row["strategy"].lower(), _count(row["n_gpus"]) or 1
    degrees = {name: _degree(text, name) for name in ("tp", "pp", "cp", "sp")}
    inner = math.prod(degrees.values())
    if "offload" in text or "offload" in row["method"]:
        strategy = "zero3_offload" if "zero3" in text else "other"
    elif gpus == 1 or "listed as" in text:
        strategy, gpus = "single", 1
    elif "fsdp" in text or "zero3" in text:
        strategy = "zero3"
    else:
        found = (word for word in ("zero2", "ddp", "device_map") if word in text)
        strategy = {"device_map": "layers"}.get(word := next(found, "other"), word)
    if strategy == "other" and degrees["tp"] > 1:
        strategy = "ddp"
    return {"strategy": strategy, "num_gpus": gpus, "dp": max(1, gpus // inner), **degrees}


def _degree(text: str, name: str) -> int:
    found = re.search(rf"{name}(\d+)", text)
    return int(found[1]) if found else 1


def asked(cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a peer is told: everything but the answer."""
    for case in cases:
        yield {key: value for key, value in case.items() if key not in ("measured_bytes", "rows")}
