"""Proves that the tier engine trains as a plain PyTorch loop with torch's AdamW on fp32 masters does.

Tolerance: in fp32 the two differ by the order in which gradients of a tied weight or of micro-batches add up, and by
AdamW's last bit: losses and norms agree to 2e-5, and 99.5 % of the weights to 2e-5 of themselves. AdamW divides a
gradient by its own size, so the few whose gradient is all rounding may move by a share of lr: at most a tenth of one
step's 1e-3. In bf16 a gradient may round the other way, so weights are held to a few roundings and losses to 1e-2.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiers_doubles import BadDisk, batches, bert, class_batches, class_loss, llama, lora, place, same, train, weights_of

from stoker.core.errors import ModelError, RunError
from stoker.core.schedule import TierBudgets
from stoker.engine.loss_scale import LossScale
from stoker.engine.tiers import TieredTrainer
from stoker.engine.tiers.boundaries import share_slab
from stoker.engine.tiers.trainer import clip_coefficient
from stoker.techniques.precision.masters import MasterWeightOptimizer


def _plain(model: Any, steps: int, count: int, *, lr: float, clip: float) -> tuple[list[tuple[float, float]], Any]:
    """A plain loop: full logits, torch's AdamW over fp32 masters, torch's clipping, gradients added in fp32."""
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = MasterWeightOptimizer(
        lambda groups: torch.optim.AdamW(groups), [{"params": params, "lr": lr, "weight_decay": 0.01}]
    )
    found = []
    for step in range(steps):
        micros = batches(step, count)
        weight = sum(float((m["labels"][:, 1:] != -100).sum()) for m in micros)
        sums = [torch.zeros(p.shape) for p in params]
        total = 0.0
        for micro in micros:
            logits = model(input_ids=micro["input_ids"], use_cache=False).logits.float()
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), micro["labels"][:, 1:].flatten(), ignore_index=-100, reduction="sum"
            )
            (loss / weight).backward()
            total += loss.item()
            for p, s in zip(params, sums, strict=True):
                if p.grad is not None:
                    s.add_(p.grad)
                    p.grad = None
        for p, s in zip(params, sums, strict=True):
            p.grad = s.to(p.dtype)
        norm = torch.nn.utils.get_total_norm([p.grad.float() for p in params])
        optimizer.grad_scale = (clip / (norm + 1e-6)).clamp(max=1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append((total / weight, norm.item()))
    return found, {name: p.detach() for name, p in model.named_parameters()}


def _check_weights(ours: dict[str, torch.Tensor], theirs: Any) -> None:
    apart = torch.cat([(weight - theirs[name]).abs().flatten() for name, weight in ours.items()])
    allowed = torch.cat([2e-6 + 2e-5 * weight.abs().flatten() for weight in ours.values()])
    assert (apart <= allowed).float().mean() > 0.995 and apart.max() < 1e-4


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("count", [1, 4])
def test_fp32_follows_torchs_adamw(tied: bool, count: int, tmp_path: Path) -> None:
    theirs, their_weights = _plain(llama(tied=tied, dtype=torch.float32), 12, count, lr=1e-3, clip=1.0)
    ours, weights, _t = train(
        llama(tied=tied, dtype=torch.float32), place(state="dram"), tmp_path, steps=12, count=count, lr=1e-3
    )
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    _check_weights(weights, their_weights)


@pytest.mark.parametrize("count", [1, 4])
def test_bf16_follows_torchs_adamw_on_fp32_masters(count: int, tmp_path: Path) -> None:
    theirs, their_weights = _plain(llama(tied=False), 12, count, lr=1e-3, clip=1.0)
    ours, weights, _t = train(llama(tied=False), place(state="dram"), tmp_path, steps=12, count=count, lr=1e-3)
    np.testing.assert_allclose([x[0] for x in ours], [x[0] for x in theirs], rtol=1e-2)
    for name, weight in weights.items():
        torch.testing.assert_close(weight.float(), their_weights[name].float(), rtol=1e-2, atol=4e-3)


def test_adapters_follow_torchs_adamw(tmp_path: Path) -> None:
    theirs, their_weights = _plain(lora(llama(dtype=torch.float32)), 12, 2, lr=1e-3, clip=1.0)
    ours, weights, trainer = train(
        lora(llama(dtype=torch.float32)), place(weights="dram", state="dram"), tmp_path, steps=12, count=2, lr=1e-3
    )
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    _check_weights(weights, their_weights)
    assert sum(len(home.layout.frozen) for home in trainer.assembly.homes) == 3 * 9 + 2


def test_the_divisor_counts_unmasked_tokens_of_the_whole_step(tmp_path: Path) -> None:
    """The mean of two unequal micro-batches is that of their tokens together, not of their means."""
    micros = batches(0, 2)
    whole = {key: torch.cat([m[key] for m in micros]) for key in micros[0]}
    apart, _w, _t = train(llama(), None, tmp_path, steps=1, count=2)
    together, _w, _t = train(llama(), None, tmp_path, steps=1, make=lambda _s, _c: [whole])
    assert apart[0][0] == pytest.approx(together[0][0], rel=1e-3)


def test_a_parameter_without_a_gradient_is_left_alone(tmp_path: Path) -> None:
    """As torch does it: no decay, no moments, no step count. BERT's pooler learns nothing from a loss on states."""

    def states(model: Any, batch: Any) -> torch.Tensor:
        hidden = model.bert(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        return model.classifier(hidden[:, 0]).float().square().sum()

    model = bert()
    before = model.bert.pooler.dense.weight.detach().clone()
    _found, weights, trainer = train(
        model, place(state="dram"), tmp_path, steps=3, loss=states, weight=lambda _b: 1.0, make=class_batches,
        weight_decay=0.5,
    )  # fmt: skip
    assert torch.equal(weights["bert.pooler.dense.weight"], before)
    steps = {slot.name: slot.steps for home in trainer.assembly.homes for slot in home.layout.slots}
    assert steps["bert.pooler.dense.weight"] == 0 and steps["classifier.weight"] == 3


def test_groups_have_their_own_rate_and_decay(tmp_path: Path) -> None:
    model = llama()
    vectors = [p for p in model.parameters() if p.ndim == 1]
    matrices = [p for p in model.parameters() if p.ndim > 1]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    groups = [
        {"params": matrices, "lr": 1e-2, "weight_decay": 0.1},
        {"params": vectors, "lr": 0.0, "weight_decay": 0.0},
    ]
    _found, weights, _t = train(model, place(state="dram"), tmp_path, steps=2, param_groups=groups)
    assert torch.equal(weights["model.norm.weight"], before["model.norm.weight"])
    assert not torch.equal(weights["model.layers.0.mlp.up_proj.weight"], before["model.layers.0.mlp.up_proj.weight"])


@pytest.mark.parametrize("parts", [{}, {"state": "nvme", "weights": "dram"}, {"state": "dram", "lane": "cpu"}])
def test_a_step_that_is_not_finite_changes_nothing_and_says_so(parts: dict[str, Any], tmp_path: Path) -> None:
    """The run with a poisoned step in the middle ends as the run without it."""

    def poisoned(model: Any, batch: Any) -> torch.Tensor:
        from stoker.engine.tiers.losses import causal_lm_loss

        loss = causal_lm_loss(model, {k: v for k, v in batch.items() if k != "bad"})
        return loss * float("inf") if batch.get("bad") else loss

    trainer = TieredTrainer(llama(), schedule=place(**parts), nvme_dir=tmp_path, lr=1e-2, loss=poisoned)
    results = []
    for step in (0, 1, -1, 2, 3):
        micros = [{**m, "bad": step < 0} for m in batches(abs(step), 2)]
        results.append(trainer.step(micros))
    assert [r.applied for r in results] == [True, True, False, True, True] and not np.isfinite(results[2].loss)
    assert trainer.steps == 4
    expected, weights, _t = train(llama(), place(**parts), tmp_path, steps=4, count=2)
    assert same(weights_of(trainer), weights)
    assert [(r.loss, r.norm) for r in results if r.applied] == expected


def test_an_fp16_overflow_is_skipped_and_the_scale_halves(tmp_path: Path) -> None:
    scaler = LossScale(scale=2.0**40)  # the first scaled loss overflows fp16 logits' gradient
    trainer = TieredTrainer(
        llama(dtype=torch.float32), schedule=place(state="dram"), lr=1e-3, scaler=scaler,
        autocast=lambda: torch.autocast("cpu", dtype=torch.float16),
    )  # fmt: skip
    before = weights_of(trainer)
    first = trainer.step(batches(0, 2))
    assert not first.applied and first.overflow and scaler.scale == 2.0**39
    assert same(weights_of(trainer), before)
    for _try in range(40):
        if trainer.step(batches(0, 2)).applied:
            break
    assert trainer.steps == 1 and scaler.scale < 2.0**39


def test_without_clipping_an_infinite_gradient_stops_the_run(tmp_path: Path) -> None:
    class Explodes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * float("inf")

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return Explodes.apply(class_loss(model, batch))

    options: dict[str, Any] = {
        "loss": loss,
        "weight": lambda _b: 1.0,
        "schedule": place(state="dram"),
        "max_grad_norm": 0.0,
    }
    trainer = TieredTrainer(bert(), **options)
    with pytest.raises(RunError, match="ST465"):
        trainer.step(class_batches(0, 1))
    with pytest.raises(RunError, match="ST464"):
        trainer.step(class_batches(0, 1))


def test_the_clip_coefficient_is_torchs() -> None:
    for norm, limit in ((3.7, 1.0), (0.2, 1.0), (1e-8, 1.0), (1.0, 1.0), (123.456, 0.3)):
        param = torch.nn.Parameter(torch.zeros(1))
        param.grad = torch.tensor([norm])
        torch.nn.utils.clip_grad_norm_([param], limit)
        assert (torch.tensor(norm) * clip_coefficient(float(np.float32(norm)), limit)).item() == param.grad.item()
    assert clip_coefficient(5.0, 0.0) == 1.0


def test_gradients_and_inputs_share_a_slab_at_its_fullest_moment() -> None:
    """W4 of issue 4: 16 GB of gradients and 17 of inputs need 17.6 GB together, not 33."""
    n, grads, inputs = 34, 0.47e9, 0.53e9
    found = share_slab([0, *[int(inputs)] * (n - 2), 0], [int(grads)] * n)
    assert found.num_bytes < 18.6e9 < (n - 2) * inputs + n * grads
    for unit in range(1, n - 1):
        assert found.inputs[unit] is not None and found.grads[unit] is not None
        assert found.inputs[unit] + int(inputs) <= found.grads[unit]


def test_evaluation_runs_on_streamed_weights(tmp_path: Path) -> None:
    for parts in ({}, {"weights": "dram", "state": "dram"}, {"weights": "nvme", "state": "nvme"}):
        _found, _w, trainer = train(llama(), place(**parts), tmp_path, steps=3)
        with trainer.evaluating() as model, torch.no_grad():
            assert not model.training
            logits = model(input_ids=batches(9, 1)[0]["input_ids"]).logits
        if not parts:
            reference = logits
        assert torch.equal(logits, reference)
        assert trainer.step(batches(3, 1)).applied


def test_budgets_choose_a_placement_that_keeps_to_them(tmp_path: Path) -> None:
    weights = None
    for hbm, dram in ((10**9, None), (500_000, None), (200_000, None), (0, 10**9), (0, 700_000)):
        budgets = TierBudgets(hbm_bytes=max(hbm, 110_000), dram_bytes=dram)
        trainer = TieredTrainer(
            llama(), budgets=budgets, nvme_dir=tmp_path, lr=1e-2, boundary_bytes=1536, micro_batches=2
        )
        for step in range(4):
            trainer.step(batches(step, 2))
        assert dram is None or trainer.assembly.host_bytes <= dram
        found = weights_of(trainer)
        assert weights is None or same(found, weights)
        weights = found


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("nth", [1, 7, 40])
def test_a_failing_disk_is_named_and_nothing_goes_on(kind: str, nth: int, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ST462") as caught:
        _train_on(BadDisk(kind, nth, errno=5), tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_slow_disk_and_short_reads_are_only_slow(tmp_path: Path) -> None:
    expected = _train_on(None, tmp_path)
    assert same(_train_on(BadDisk("read", 3, delay_s=0.01, short=True), tmp_path), expected)
    assert same(_train_on(BadDisk("write", 3, delay_s=0.01, short=True), tmp_path), expected)


def _train_on(port: Any, folder: Path) -> dict[str, torch.Tensor]:
    schedule = place(state="nvme", weights="nvme", gradients="dram")
    return train(llama(), schedule, folder, steps=3, count=1, flash_port=port)[1]


def test_a_stuck_disk_is_named(tmp_path: Path) -> None:
    from stoker.engine.tiers.nvme import FlashFile

    told: list[str] = []
    flash = FlashFile(tmp_path, 4096, port=BadDisk("read", 1, delay_s=1.0), notice=told.append, slow_s=0.1, stuck_s=0.4)
    page = torch.zeros(8192, dtype=torch.uint8)
    start = -page.data_ptr() % 4096
    with pytest.raises(RunError, match="ST462"):
        flash.wait(flash.read(0, page[start : start + 4096]))
    assert len(told) == 1 and "stuck" in told[0]
    flash.close()


def test_too_little_room_is_refused_with_numbers_before_the_first_step(tmp_path: Path) -> None:
    class Full(BadDisk):
        def free_bytes(self, folder: Path) -> int:
            return 300 << 20

    with pytest.raises(RunError, match=r"ST461.*may be used"):
        TieredTrainer(
            llama(),
            schedule=place(state="nvme"),
            nvme_dir=tmp_path,
            budgets=TierBudgets(hbm_bytes=10**9, nvme_bytes=1000),
        )
    from stoker.engine.tiers.nvme import FlashFile

    with pytest.raises(RunError, match="ST461"):
        FlashFile(tmp_path, 64 << 20, port=Full("read", 10**9))
    with pytest.raises(RunError, match=r"ST460.*budget"):
        TieredTrainer(llama(), schedule=place(state="dram"), budgets=TierBudgets(hbm_bytes=10**9, dram_bytes=1000))
    with pytest.raises(RunError, match="ST466"):
        TieredTrainer(llama(), schedule=place(state="dram"), budgets=TierBudgets(hbm_bytes=1000))


def test_the_cgroup_counts_not_memtotal() -> None:
    from stoker.engine.tiers.slab import require_dram

    with pytest.raises(RunError, match=r"ST460.*can still get"):
        require_dram(5 << 30, None, usable=lambda: float(5 << 30))
    require_dram(3 << 30, None, usable=lambda: float(5 << 30))


def test_bytes_written_are_counted(tmp_path: Path) -> None:
    """10 bytes a parameter a step: the wear that the plan shows."""
    _found, _w, trainer = train(llama(tied=False), place(state="nvme"), tmp_path, steps=3)
    flash = trainer.assembly.flash
    state = sum(home.layout.state_bytes for home in trainer.assembly.homes)
    assert flash is not None and flash.written_bytes == 3 * state
    trainer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_no_chain_is_refused() -> None:
    import transformers

    settings = transformers.AlbertConfig(
        vocab_size=99,
        hidden_size=32,
        embedding_size=16,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
    )
    model = transformers.AlbertForSequenceClassification(settings)
    with pytest.raises(ModelError, match="ST463"):
        TieredTrainer(model, loss=class_loss, weight=lambda _b: 1.0)
