"""Proves what is told before step 1: disk space (case 14), idle GPUs (case 18), formats, weights, pickles."""

import json
import struct
from pathlib import Path

import pytest
import torch
from torch import nn

from stoker.core.errors import EnvironmentProblem, RunError
from stoker.core.hardware import Device
from stoker.core.run_config import RunConfig
from stoker.engine import preflight
from stoker.engine.checkpoint import FreeSpace, LocalStorage, require_space_for_run
from stoker.engine.pooling import choose_pooling
from stoker.engine.weights_check import weight_names


class Mount(LocalStorage):
    """A disk with a stated amount of free space."""

    def __init__(self, free_bytes: int) -> None:
        self._free = free_bytes

    def free_space(self, path: Path) -> FreeSpace:
        real = super().free_space(path)
        return FreeSpace(mount="/out", free_bytes=self._free, block_bytes=real.block_bytes, inodes=None)


def test_8b_parameters_need_449_7_gb_for_keep_3_and_300_are_refused(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.empty(8_030_000_000, dtype=torch.bfloat16, device="meta"))
    state, masters = preflight.optimizer_bytes("adamw", [weight], masters=True)
    each = weight.numel() * weight.element_size() + state + masters
    assert each == 14 * 8_030_000_000
    assert each * (3 + 1) == pytest.approx(449.7e9, rel=1e-3)
    with pytest.raises(RunError, match="/out") as caught:
        require_space_for_run(tmp_path, each, 3, Mount(300 * 10**9))
    assert caught.value.code == "ST450" and "449.7 GB" in caught.value.problem
    require_space_for_run(tmp_path, each, 3, Mount(451 * 10**9))


def test_fp32_training_saves_no_masters() -> None:
    weight = nn.Parameter(torch.empty(1000, device="meta"))
    assert preflight.optimizer_bytes("adamw", [weight], masters=False) == (8000, 0)
    assert preflight.optimizer_bytes("sgd", [weight], masters=False) == (4000, 0)


def test_a_read_only_run_folder_is_told_before_anything(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="ST401"):
        preflight.check_writable(blocked / "run")


def test_idle_gpus_are_named_and_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 6)
    notice = preflight.idle_gpus_notice(torch.device("cuda", 0), 1)
    assert notice is not None and "6 GPUs are visible, 1 is used" in notice
    assert preflight.idle_gpus_notice(torch.device("cpu"), 1) is None


def device(name: str, capability: tuple[int, int]) -> Device:
    return Device(
        name=name, kind="cuda", vendor="NVIDIA", architecture="", compute_capability=capability, sold_bytes=1,
        visible_bytes=1, memory_bytes_per_s=1.0, peak_flops_per_s={"fp16": 1.0}, interconnect="pcie",
        link_bytes_per_s=1.0, pcie_bytes_per_s=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("capability", "precision", "fine"), [((7, 5), "bf16", False), ((8, 0), "bf16", True)])
def test_the_real_capability_decides(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], precision: str, fine: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    config = RunConfig(
        micro_batch_size=1,
        gradient_accumulation_steps=1,
        global_batch_size=1,
        precision=precision,  # type: ignore[arg-type]
    )
    planned = device("some GPU", (9, 0))
    if fine:
        assert preflight.choose_device(planned, config, 1).type == "cuda"
    else:
        with pytest.raises(RunError, match="ST406"):
            preflight.choose_device(planned, config, 1)


def test_what_the_gpu_cannot_do_names_the_pin_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    sizes = {"micro_batch_size": 1, "gradient_accumulation_steps": 1, "global_batch_size": 1}
    with pytest.raises(RunError, match="ST406") as caught:
        preflight.choose_device(device("T4", (7, 5)), RunConfig(**sizes, precision="fp16_amp", attention="flash"), 1)
    assert "run.attention" in caught.value.fix
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr("stoker.techniques.attention.flash.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match="ST581"):
        preflight.choose_device(device("A100", (8, 0)), RunConfig(**sizes, precision="bf16", attention="flash"), 1)


def test_a_plan_for_a_gpu_or_for_several_is_refused_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = RunConfig(micro_batch_size=1, gradient_accumulation_steps=1, global_batch_size=1)
    with pytest.raises(RunError, match="ST405"):
        preflight.choose_device(device("H100", (9, 0)), config, 1)
    with pytest.raises(RunError, match="ST407"):
        preflight.choose_device(device("H100", (9, 0)), config, 4)


def write_safetensors(file: Path, cut: int = 0) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    file.write_bytes((struct.pack("<Q", len(header)) + header + bytes(16))[: -cut or None])


def test_weights_are_checked_before_they_are_loaded(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ST410"):
        weight_names(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(RunError, match="ST412"):
        weight_names(tmp_path)
    write_safetensors(tmp_path / "model.safetensors")
    assert weight_names(tmp_path) == {"a"}
    write_safetensors(tmp_path / "model.safetensors", cut=3)
    with pytest.raises(RunError, match="ST411"):
        weight_names(tmp_path)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    write_safetensors(tmp_path / "model-1.safetensors")
    with pytest.raises(RunError, match=r"model-2\.safetensors is missing"):
        weight_names(tmp_path)
    index["weight_map"]["b"] = "../elsewhere.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(RunError, match="points outside"):
        weight_names(tmp_path)


def test_pooling_is_what_the_model_was_trained_with(tmp_path: Path) -> None:
    encoder = {"model_type": "bert", "architectures": ["BertModel"]}
    electra = {"model_type": "electra", "architectures": ["ElectraForPreTraining"]}
    names = {"embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight"}

    def chosen(asked: str, config: dict[str, object], name: str, weights: set[str] = names) -> str | None:
        return choose_pooling(asked, name=name, folder=tmp_path, config=config, weight_names=weights)

    assert chosen("auto", encoder, "/models/x") == "mean"  # an encoder alone: published as a sentence encoder
    assert chosen("auto", electra, "beomi/KcELECTRA-base-v2022") is None
    assert chosen("auto", {**encoder, "architectures": ["BertForMaskedLM"]}, "klue/bert-base") is None
    assert chosen("auto", {**electra, "model_type": "bert"}, "intfloat/multilingual-e5-small") == "mean"
    assert chosen("auto", encoder, "x", {*names, "classifier.weight"}) is None
    assert chosen("first", electra, "x") is None and chosen("max", electra, "x") == "max"
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}', encoding="utf-8")
    assert chosen("auto", encoder, "x") == "first"
