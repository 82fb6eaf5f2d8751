"""Loss kernels cost what was measured for them, and what cannot be built says so.

Measured: TRL pull request 6858, H100, forward and backward of the loss alone at 16,384 tokens x 248,320 outputs x
2,048 wide in bf16; the same figures stand in shared/data/validation/loss_buffer_components.csv.
"""

import pytest

from stoker.core.errors import PlanningError
from stoker.core.units import GIB
from stoker.techniques.loss import LOSSES, loss

TOKENS, OUTPUTS, WIDTH = 16_384, 248_320, 2_048


@pytest.mark.parametrize(
    ("name", "measured_gib", "within"),
    [("eager", 47.55, 0.02), ("liger", 6.05, 0.08), ("cce", 3.09, 0.06), ("trl_chunked", 19.67, 0.04)],
)
def test_a_kernel_costs_what_was_measured(name: str, measured_gib: float, within: float) -> None:
    """Weight, its standing gradient, hidden states and their gradient, and what the kernel states."""
    weight, hidden = WIDTH * OUTPUTS, TOKENS * WIDTH
    technique = loss(name)
    kernel = technique.logits_bytes(TOKENS, OUTPUTS, 2.0) + technique.head_bytes(weight, 2.0)
    if name == "eager":
        kernel -= technique.held_bytes(TOKENS, OUTPUTS, 2.0)  # the benchmark lets the logits go
    total = kernel + 2 * 2 * weight + 2 * 2 * hidden
    assert total / GIB == pytest.approx(measured_gib, rel=within)


def test_old_transformers_costs_two_bytes_more_and_narrow_six_less() -> None:
    """A T4 with eager fp32 upcast: 16 bytes a logit; LitGPT's 16-bit cross-entropy: 8."""
    per_logit = {t.name: t.logits_bytes(1.0e4, 1.0e5, 2.0) / 1e9 for t in LOSSES}
    assert per_logit["upcast"] == 16.0
    assert per_logit["eager"] == 14.0
    assert per_logit["narrow"] == 8.0


@pytest.mark.parametrize("name", ["upcast", "shifted", "narrow", "trl_chunked"])
def test_a_loss_of_other_programs_is_priced_and_not_built(name: str) -> None:
    with pytest.raises(PlanningError) as caught:
        loss(name).language_model_loss(None, None, None)  # type: ignore[arg-type]
    assert caught.value.code == "ST381"
