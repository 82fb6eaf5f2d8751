"""The KV cache is that of the key-value heads, the config's head size, the windows and the pages: cases 51, 53 and 55.

Expected numbers are arithmetic on published config.json shapes, from the cases; none is taken from this code.
"""

import json
from dataclasses import replace
from typing import cast

import pytest

from stoker.catalogue.models.api import arch_from_config
from stoker.catalogue.models.lookup.bundled import find_bundled
from stoker.cli.main import main
from stoker.core.ledger import ModelArch
from stoker.core.units import GIB
from stoker.estimators.kv_cache import (
    WeightForm,
    cache_bytes,
    cache_bytes_per_token,
    largest_context,
    pages_of,
    serve,
    unquantised_part,
    weight_bytes,
)


def shape(name: str) -> ModelArch:
    bundled = find_bundled(name)
    assert bundled is not None
    return arch_from_config(bundled.config, task="causal_lm", name=bundled.hub_id)


@pytest.mark.parametrize(("name", "expected"), [("llama-3.1-8b", 131_072), ("qwen3-4b", 147_456)])
def test_case_51_grouped_heads_and_the_head_size_of_the_config(name: str, expected: int) -> None:
    assert cache_bytes_per_token(shape(name)) == expected


def test_case_53_window_layers_count_at_one_token_and_stop_at_their_window() -> None:
    model = shape("gpt-oss-120b")
    assert cache_bytes(model, 1) == cache_bytes(model, 1, windowed=False) == 73_728
    assert cache_bytes(model, 131_072) / GIB == pytest.approx(4.504, abs=5e-4)
    assert cache_bytes(model, 131_072, windowed=False) / GIB == 9.0
    gemma = shape("gemma-2-9b")
    assert cache_bytes(gemma, 8_192) / GIB == pytest.approx(1.969, abs=5e-4)
    assert cache_bytes(gemma, 8_192, windowed=False) / GIB == 2.625


def test_case_55_the_default_context_does_not_fit_and_a_smaller_one_does() -> None:
    model = shape("llama-3.1-70b")
    budget = (47.5 * 0.9 - 37.1 - 1.5) * GIB
    longest = serve(model, 131_072, budget_bytes=budget)
    assert longest.needed_bytes / GIB == 40.0 and not longest.fits
    shorter = serve(model, 8_192, budget_bytes=budget)
    assert shorter.needed_bytes / GIB == 2.5 and shorter.fits
    assert longest.largest_context == 13_598
    assert serve(model, 4_096, sequences=4, budget_bytes=budget).largest_context == 13_598 // 4


def test_case_55_whole_pages_round_the_context_down() -> None:
    pages, tokens = pages_of(229.9 * 16 * 327_680, 327_680)
    assert (pages, tokens) == (229, 3_664)
    assert tokens < 4_096


def test_a_latent_cache_is_one_vector_for_all_heads() -> None:
    """DeepSeek-V3 keeps 512 + 64 elements a layer and token (its report, 2412.19437, section 2.1): 1,152 bytes."""
    model = shape("llama-3.1-8b")
    block = next(g for g in model.groups if g.attention is not None)
    assert block.attention is not None
    latent = replace(block.attention, kv_cache_elements=576)
    groups = tuple(replace(g, attention=latent) if g is block else g for g in model.groups)
    assert cache_bytes_per_token(replace(model, groups=groups)) == block.repeats * 576 * 2


def test_the_largest_context_is_the_largest() -> None:
    model = shape("gemma-2-9b")
    most = largest_context(model, 3.0 * GIB)
    assert most is not None
    assert cache_bytes(model, most) <= 3.0 * GIB < cache_bytes(model, most + 1)
    assert largest_context(model, -1.0) == 0


def test_four_bit_weights_of_a_70b_are_what_the_server_of_case_55_loads() -> None:
    """GPTQ/AWQ 4-bit at group 128 with 16-bit embeddings and head: 37.1 GiB in the thread of case 55."""
    assert weight_bytes(shape("llama-3.1-70b"), "int4") / GIB == pytest.approx(37.1, rel=0.005)


def test_case_6_experts_are_weights_too() -> None:
    model = shape("qwen3-30b-a3b")
    assert weight_bytes(model, "bf16") == pytest.approx(2 * 30_532.123e6, rel=1e-6)
    assert 0.25 < weight_bytes(model, "nf4") / weight_bytes(model, "bf16") < 0.32


@pytest.mark.parametrize(
    ("model", "form", "gib", "part"),
    [
        ("qwen3-30b-a3b", "int4", 58.4, "experts"),  # 2.05 bytes each, as 80e9 parameters that take 153 GiB
        ("qwen3-30b-a3b", "int4", 15.5, None),  # 4 bits and a scale for every 128
        ("llama-3.1-70b", "int4", 131.4, "weights"),
        ("llama-3.1-70b", "bf16", 131.4, None),
    ],
)
def test_case_6_weights_too_large_for_their_format_are_told(
    model: str, form: str, gib: float, part: str | None
) -> None:
    assert unquantised_part(shape(model), cast(WeightForm, form), gib * GIB) == part


def test_case_6_the_command_says_that_experts_are_not_quantised(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("qwen3-30b-a3b", "--weights", "int4", "--lang", "en")
    assert "experts are NOT quantised: 2.05 bytes" in run(capsys, *asked, "--weights-gib", "58.4")[1]
    assert "NOT quantised" not in run(capsys, *asked)[1]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(["size", *arguments])
    code = stop.value.code
    return (code if isinstance(code, int) else 1), capsys.readouterr().out


def test_the_command_says_what_fits_and_exits_by_it(capsys: pytest.CaptureFixture[str]) -> None:
    server = ("llama-3.1-70b", "--visible-gib", "47.5", "--weights-gib", "37.1", "--lang", "en")
    code, text = run(capsys, *server, "--context", "131072")
    assert code == 3 and "13,598" in text and "40.0 GiB" in text
    code, text = run(capsys, *server, "--context", "8192", "--json")
    answer = json.loads(text)
    assert code == 0 and answer["cache_bytes_per_token"] == 327_680
    assert answer["engines"] == [
        {
            "window_support": False, "cache_bytes": 2_684_354_560, "fits": True, "largest_context": 13_598,
            "pages": 849, "paged_tokens": 13_584,
        }
    ]  # fmt: skip


def test_without_a_gpu_sizes_are_told_and_nothing_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "gpt-oss-120b", "--context", "131072", "--json")
    engines = json.loads(text)["engines"]
    assert code == 0 and [e["fits"] for e in engines] == [None, None]
    assert [e["window_support"] for e in engines] == [True, False]
    assert engines[1]["cache_bytes"] == 9 * GIB


@pytest.mark.parametrize("flag", ["--visible-gib", "--weights-gib", "--overhead-gib", "--share"])
@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e308"])
def test_sizes_that_no_device_has_are_refused(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["size", "llama-3.1-8b", "--gpu", "L40S", flag, value])
    assert ended.value.code == 2 and "ST009" in capsys.readouterr().err
