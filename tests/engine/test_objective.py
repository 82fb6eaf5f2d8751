"""Proves that a step's loss and gradient are the true mean over the step, however it is cut (case 16)."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from stoker.engine.microbatch import IGNORE, MicroBatch
from stoker.engine.objective import (
    MultiLabel,
    NextToken,
    SingleLabel,
    balanced_class_weights,
    balanced_positive_weights,
)
from stoker.techniques.loss import loss


class Given(nn.Module):
    """Answers the logits it is given, times one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return logits * self.scale


def micro(objective: SingleLabel | MultiLabel, logits: torch.Tensor, targets: torch.Tensor) -> MicroBatch:
    return MicroBatch(
        inputs={"logits": logits},
        targets=targets,
        samples=len(targets),
        tokens=len(targets),
        padded_tokens=len(targets),
        weight=objective.weight(targets),
    )


def logits_of_loss(value: float, rows: int) -> torch.Tensor:
    """Two-class logits whose cross-entropy with class 0 is exactly `value`."""
    gap = torch.log(torch.expm1(torch.tensor(value, dtype=torch.float64)))
    return torch.stack((torch.zeros(rows), gap.float().expand(rows)), dim=1)


def step_loss(objective: SingleLabel | MultiLabel, batches: list[MicroBatch]) -> tuple[float, float]:
    """(mean loss, gradient of the scale) of one step over `batches`."""
    model = Given()
    weight = sum(batch.weight for batch in batches)
    total = 0.0
    for batch in batches:
        part = objective.loss_sum(model, batch) / weight
        part.backward()
        total += float(part.detach())
    assert model.scale.grad is not None
    return total, float(model.scale.grad)


def test_10_units_at_2_and_90_at_4_are_3_point_8_in_one_batch_and_in_two() -> None:
    objective = SingleLabel()
    logits = torch.cat((logits_of_loss(2.0, 10), logits_of_loss(4.0, 90)))
    targets = torch.zeros(100, dtype=torch.int64)
    whole = step_loss(objective, [micro(objective, logits, targets)])
    parts = step_loss(
        objective, [micro(objective, logits[:10], targets[:10]), micro(objective, logits[10:], targets[10:])]
    )
    assert whole[0] == pytest.approx(3.8, abs=1e-5)
    assert parts[0] == pytest.approx(3.8, abs=1e-5)
    assert parts[1] == pytest.approx(whole[1], rel=1e-5)


def test_multi_label_divides_by_rows_times_labels() -> None:
    objective = MultiLabel()
    logits, targets = torch.randn(6, 3), torch.randint(0, 2, (6, 3)).float()
    mean = functional.binary_cross_entropy_with_logits(logits, targets)
    cut = [micro(objective, logits[:1], targets[:1]), micro(objective, logits[1:], targets[1:])]
    assert step_loss(objective, cut)[0] == pytest.approx(float(mean), rel=1e-5)


def test_class_weights_weigh_loss_and_divisor() -> None:
    weights = balanced_class_weights([30, 10])
    assert weights.tolist() == pytest.approx([40 / 60, 2.0])
    objective = SingleLabel(weights)
    logits, targets = torch.randn(8, 2), torch.tensor([0, 0, 0, 1, 0, 0, 1, 0])
    expected = functional.cross_entropy(logits, targets, weight=weights)
    cut = [micro(objective, logits[:3], targets[:3]), micro(objective, logits[3:], targets[3:])]
    assert step_loss(objective, cut)[0] == pytest.approx(float(expected), rel=1e-5)


def test_positive_weights_are_bounded_and_one_for_an_absent_label() -> None:
    assert balanced_positive_weights([250, 0, 1, 900], 1000).tolist() == [3.0, 1.0, 100.0, 1.0]


@pytest.mark.parametrize("kernel", ["eager", "chunked"])
def test_language_model_loss_equals_the_models_own(kernel: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 50, (2, 9))
    labels = ids.clone()
    labels[0, :4] = -100
    own = model(input_ids=ids, labels=labels).loss
    targets = torch.cat((labels[:, 1:], torch.full((2, 1), IGNORE)), dim=1)
    objective = NextToken(loss(kernel).language_model_loss)
    batch = MicroBatch(
        inputs={"input_ids": ids},
        targets=targets,
        samples=2,
        tokens=18,
        padded_tokens=18,
        weight=objective.weight(targets),
    )
    assert batch.weight == 5 + 8
    ours = objective.loss_sum(model, batch) / batch.weight
    assert float(ours.detach()) == pytest.approx(float(own.detach()), rel=1e-5)


def test_soft_capped_logits_go_through_the_models_own_forward() -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.5,
    )  # fmt: skip
    model = Gemma2ForCausalLM(config).eval()
    ids = torch.randint(0, 40, (1, 7))
    own = model(input_ids=ids, labels=ids).loss
    targets = torch.cat((ids[:, 1:], torch.full((1, 1), IGNORE)), dim=1)
    batch = MicroBatch(inputs={"input_ids": ids}, targets=targets, samples=1, tokens=7, padded_tokens=7, weight=6.0)
    ours = NextToken(loss("eager").language_model_loss).loss_sum(model, batch) / 6.0
    assert float(ours.detach()) == pytest.approx(float(own.detach()), rel=1e-5)
