"""`stoker size MODEL`: weights and KV cache of inference, and the longest context that a GPU has room for.

Exit 0: the context asked for fits (or no GPU was named), 3: it does not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from stoker.cli.console import print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.i18n import _
from stoker.core.units import GIB

if TYPE_CHECKING:
    from stoker.core.hardware import Device
    from stoker.core.ledger import ModelArch
    from stoker.estimators.kv_cache import CacheForm, Serving, WeightForm

EXIT_DOES_NOT_FIT = 3
_MOST_TOKENS = 1 << 30
_MOST_GIB = 1e9


def size(
    model: Annotated[
        str,
        typer.Argument(help=_("bundled name, hub id, folder or config.json"), metavar="MODEL", show_default=False),
    ],
    context: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MOST_TOKENS, help=_("tokens of a sequence; default: the model's own limit"), show_default=False
        ),
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, max=1_000_000, help=_("sequences held at once"))] = 1,
    gpu: Annotated[str, typer.Option(help=_("GPU name, such as L40S"), show_default=False)] = "",
    visible_gib: Annotated[
        float | None,
        typer.Option(min=0.0, max=_MOST_GIB, help=_("memory that the device shows, in GiB"), show_default=False),
    ] = None,
    weights: Annotated[
        str, typer.Option(help=_("number format of the weights: fp32 bf16 fp16 fp8 int8 int4 nf4 nf4_double"))
    ] = "bf16",
    weights_gib: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=_MOST_GIB, help=_("size of the weights in GiB, where it is known"), show_default=False
        ),
    ] = None,
    kv_dtype: Annotated[str, typer.Option(help=_("number format of the cache: fp32 bf16 fp16 fp8 int8"))] = "fp16",
    share: Annotated[float, typer.Option(min=0.01, max=1.0, help=_("share of the memory that the engine takes"))] = 0.9,
    overhead_gib: Annotated[
        float, typer.Option(min=0.0, max=_MOST_GIB, help=_("GiB for context, activations and workspace (assumed)"))
    ] = 1.5,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from stoker.estimators.kv_cache import CACHE_BYTES, WEIGHT_FORMS, serve, weight_bytes

    element = CACHE_BYTES[cast("CacheForm", _one_of(kv_dtype, tuple(CACHE_BYTES), "--kv-dtype"))]
    arch = _arch(model)
    tokens = context or arch.max_position_embeddings or 2048
    device, visible = _device(gpu, visible_gib)
    form = cast("WeightForm", _one_of(weights, WEIGHT_FORMS, "--weights"))
    held = weight_bytes(arch, form) if weights_gib is None else weights_gib * GIB
    budget = None if visible is None else visible * share - held - overhead_gib * GIB
    engines = (True, False) if has_windows(arch) else (False,)
    shared: dict[str, Any] = {"sequences": sequences, "element_bytes": element, "budget_bytes": budget or 0.0}
    answers = [serve(arch, tokens, windowed=windowed, **shared) for windowed in engines]
    facts = {
        **_model_facts(arch, tokens, sequences, element),
        **_weight_facts(arch, form, held, given=weights_gib is not None),
        "gpu": device.name if device else None,
        "visible_bytes": visible,
        "share_frac": share,
        "overhead_bytes": round(overhead_gib * GIB),
        "budget_bytes": None if budget is None else round(budget),
    }
    print_json(_document(facts, answers, budget)) if as_json else print_answer(_text(facts, answers, budget))
    if budget is not None and not answers[-1].fits:
        raise typer.Exit(EXIT_DOES_NOT_FIT)


def _model_facts(arch: "ModelArch", tokens: int, sequences: int, element_bytes: float) -> dict[str, Any]:
    from stoker.estimators.kv_cache import cache_bytes_per_token

    return {
        "model": arch.name,
        "num_params": arch.num_params,
        "context": tokens,
        "sequences": sequences,
        "cache_bytes_per_token": cache_bytes_per_token(arch, element_bytes),
        "overhead_source": "assumed",
    }


def _weight_facts(arch: "ModelArch", form: "WeightForm", held_bytes: float, *, given: bool) -> dict[str, Any]:
    from stoker.estimators.kv_cache import unquantised_part

    return {
        "weights_bytes": round(held_bytes),
        "weights_source": "given" if given else "analytic",
        "not_quantised": unquantised_part(arch, form, held_bytes),
    }


def _one_of(value: str, known: tuple[str, ...], flag: str) -> str:
    if value.lower() in known:
        return value.lower()
    raise typer.BadParameter(
        _("{flag} {value}; there are {names}").format(flag=flag, value=value, names=", ".join(known))
    )


def _arch(model: str) -> "ModelArch":
    """The model as a decoder: looked up as a job's model is, relative to the working folder."""
    from stoker.catalogue.models.api import resolve_model
    from stoker.core.job import DataSpec, Job

    job = Job(model=model, task="causal_lm", data=DataSpec(num_samples=1), base_dir=str(Path.cwd()))
    return resolve_model(job)[1]


def _device(gpu: str, visible_gib: float | None) -> tuple["Device | None", float | None]:
    """The device, and the bytes that it shows; `visible_gib` wins over the table."""
    from stoker.catalogue.gpus import find_device

    device = find_device(gpu, place="--gpu") if gpu else None
    if visible_gib is not None:
        return device, visible_gib * GIB
    return device, float(device.visible_bytes) if device else None


def _document(facts: Mapping[str, Any], answers: "list[Serving]", budget: float | None) -> dict[str, Any]:
    return {**facts, "engines": [engine_json(answer, budget is not None) for answer in answers]}


def has_windows(arch: "ModelArch") -> bool:
    """Whether some layers look back no further than a window: then engines differ in what they keep."""
    return any(group.attention is not None and group.attention.window for group in arch.groups)


def engine_json(answer: "Serving", has_budget: bool) -> dict[str, Any]:
    """One engine's answer; without a GPU there is no budget, so nothing fits or fails."""
    return {
        "window_support": answer.windowed,
        "cache_bytes": round(answer.needed_bytes),
        "fits": answer.fits if has_budget else None,
        "largest_context": answer.largest_context if has_budget else None,
        "pages": answer.pages if has_budget else None,
        "paged_tokens": answer.paged_tokens if has_budget else None,
    }


def _text(facts: Mapping[str, Any], answers: "list[Serving]", budget: float | None) -> str:
    from stoker.core.human import format_bytes, format_count, format_large
    from stoker.report.tables import render_pairs

    pairs = [
        (
            _("model"),
            _("{name}: {params} parameters").format(name=facts["model"], params=format_large(facts["num_params"])),
        ),
        (_("weights"), format_bytes(facts["weights_bytes"], binary=True)),
        *_quantised_pairs(facts),
        (_("cache of a token"), _("{count} bytes").format(count=format_count(facts["cache_bytes_per_token"]))),
    ]
    if budget is not None:
        pairs.append(
            (
                _("left for the cache"),
                _("{budget} = {visible} x {share:g} - weights - {overhead} overhead (assumed)").format(
                    budget=format_bytes(max(budget, 0.0), binary=True),
                    visible=format_bytes(facts["visible_bytes"], binary=True),
                    share=facts["share_frac"],
                    overhead=format_bytes(facts["overhead_bytes"], binary=True),
                ),
            )
        )
    for answer in answers:
        pairs.append((_engine_name(answer, len(answers)), _verdict(answer, budget)))
    return render_pairs(pairs)


def _quantised_pairs(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """That given weights are larger than their declared format, which is what an unquantised part looks like."""
    if not facts["not_quantised"]:
        return []
    each = facts["weights_bytes"] / facts["num_params"]
    text = (
        _("experts are NOT quantised: {each:.2f} bytes a parameter in all")
        if facts["not_quantised"] == "experts"
        else _("NOT quantised: {each:.2f} bytes a parameter in all")
    )
    return [("", text.format(each=each))]


def _engine_name(answer: "Serving", count: int) -> str:
    if count == 1:
        return _("cache")
    return _("engine that frees old windows") if answer.windowed else _("engine that keeps all")


def _verdict(answer: "Serving", budget: float | None) -> str:
    from stoker.core.human import format_bytes, format_count

    text = _("{size} for {sequences} x {context} tokens").format(
        size=format_bytes(answer.needed_bytes, binary=True),
        sequences=answer.sequences,
        context=format_count(answer.context),
    )
    if budget is None:
        return text
    text += ": " + (_("fits") if answer.fits else _("does not fit"))
    if answer.largest_context is not None:
        text += _("; longest context {most} tokens").format(most=format_count(answer.largest_context))
    if answer.pages is not None:
        text += _(" (whole pages: {pages} x 16 = {paged})").format(
            pages=format_count(answer.pages), paged=format_count(answer.paged_tokens)
        )
    return text
