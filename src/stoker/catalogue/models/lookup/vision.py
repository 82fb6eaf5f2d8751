"""Vision-language models for planning: by name (data/published.json) or by a config.json with a vision_config.

Both give the config that `tables/vision_language.py` reads: the language model's own, and the parameters of tower and
projector. Tower counts are those of transformers' modules (modeling_qwen2_vl, _qwen2_5_vl, _clip, _siglip).
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.lookup.named import NamedModel, named_models
from stoker.core.human import format_large
from stoker.core.i18n import _

MODEL_TYPE: Final = "vision_language"
_SUFFIXES: Final = ("-hf", "-instruct", "-it", "-pt", "-chat")
_QWEN_IMAGE_TOKENS: Final = 1024  # of a megapixel: one token is 28 x 28 pixels, and images keep their own size
_NEXT_TILES: Final = 5  # LLaVA-NeXT: at most four tiles and the whole image
_TEXT_TYPES: Final = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionModel:
    """One vision-language model. `config`: model_type vision_language; `image_tokens`: of one image; `hub_id` where
    it is known by name."""

    config: Mapping[str, Any]
    image_tokens: int
    hub_id: str = ""

    def note(self, name: str) -> str:
        """What a plan of it leaves out, and what the data's lengths must hold."""
        return _(
            "{name} is a vision-language model, planned only: the language model in full, the vision tower as {params} "
            "parameters whose compute is left out, so intervals are wider; one image takes about {tokens} tokens, "
            "which the declared lengths must include"
        ).format(name=name, params=format_large(self.config["vision_params"]), tokens=self.image_tokens)


def find_vision_language(name: str) -> VisionModel | None:
    """The model called `name` (hub id or short name, any case, with or without -Instruct, -it, -hf), or None."""
    wanted = _plain(name)
    for model in _named():
        if wanted in {_plain(other) for other in model.names}:
            return VisionModel(config=model.config, image_tokens=model.image_tokens or 0, hub_id=model.hub_id)
    return None


def nearest_vision_language(name: str, count: int = 2) -> list[str]:
    """Hub ids that look like `name`, best first; only near ones."""
    known = {model.hub_id.casefold(): model.hub_id for model in _named()}
    return [known[key] for key in difflib.get_close_matches(name.casefold(), known, n=count, cutoff=0.8)]


def read_vision_language(config: Mapping[str, Any], place: str) -> VisionModel | None:
    """`config` of a Hugging Face model with a vision tower; None for any other. Raises ModelError ST205."""
    count = _COUNTS.get(str(config.get("model_type")))
    if count is None or not isinstance(config.get("vision_config"), Mapping):
        return None
    text = config.get("text_config")
    text = dict(text if isinstance(text, Mapping) else config)  # Qwen's first configs hold the text keys at the top
    text["model_type"] = _TEXT_TYPES.get(str(text.get("model_type")), text.get("model_type"))
    vision = ConfigReader({**_DEFAULTS[str(config["model_type"])], **config["vision_config"]}, place)
    params, tokens = count(vision, config, _text_width(text, place))
    return VisionModel(
        config={"model_type": MODEL_TYPE, "text_config": text, "vision_params": params}, image_tokens=tokens
    )


def _named() -> tuple[NamedModel, ...]:
    return tuple(model for model in named_models() if model.config["model_type"] == MODEL_TYPE)


def _plain(name: str) -> str:
    text = name.strip().casefold()
    cut = next((text.removesuffix(suffix) for suffix in _SUFFIXES if text.endswith(suffix)), text)
    return cut if cut == text else _plain(cut)


def _text_width(text: Mapping[str, Any], place: str) -> int:
    return ConfigReader({"hidden_size": _WIDTHS.get(str(text["model_type"])), **text}, place).size("hidden_size")


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _qwen2(vision: ConfigReader, config: Mapping[str, Any], _width: int) -> tuple[int, int]:
    """Qwen2-VL: LayerNorm, a two-matrix MLP; merger of 2 x 2 patches into the language model's width (hidden_size)."""
    width, ratio = vision.size("embed_dim"), vision.size("mlp_ratio", most=64)
    block = 4 * width + _linear(width, 3 * width) + _linear(width, width)
    block += _linear(width, ratio * width) + _linear(ratio * width, width)
    return _qwen(vision, width, block, norm=2 * width, out=vision.size("hidden_size")), _QWEN_IMAGE_TOKENS


def _qwen2_5(vision: ConfigReader, config: Mapping[str, Any], _width: int) -> tuple[int, int]:
    """Qwen2.5-VL: RMSNorm and a gated MLP."""
    width, inner = vision.size("hidden_size"), vision.size("intermediate_size")
    block = 2 * width + _linear(width, 3 * width) + _linear(width, width)
    block += 2 * _linear(width, inner) + _linear(inner, width)
    return _qwen(vision, width, block, norm=width, out=vision.size("out_hidden_size")), _QWEN_IMAGE_TOKENS


def _qwen(vision: ConfigReader, width: int, block: int, *, norm: int, out: int) -> int:
    patches = 3 * vision.size("temporal_patch_size") * vision.size("patch_size") ** 2 * width
    merged = width * vision.size("spatial_merge_size", most=64) ** 2
    return patches + vision.layers("depth") * block + norm + _linear(merged, merged) + _linear(merged, out)


def _tower(vision: ConfigReader, *, is_clip: bool) -> tuple[int, int]:
    """(parameters, patches of an image) of a CLIP or SigLIP tower, its pooling head left out."""
    width, inner, patch = vision.size("hidden_size"), vision.size("intermediate_size"), vision.size("patch_size")
    patches = (vision.size("image_size") // patch) ** 2
    block = 4 * width + 4 * _linear(width, width) + _linear(width, inner) + _linear(inner, width)
    stem = _linear(3 * patch**2, width, bias=not is_clip) + patches * width + 2 * width  # patches, positions, last norm
    extra = 4 * width if is_clip else 0  # class token and its position, norm before the first block
    return stem + extra + vision.layers() * block, patches


def _llava(vision: ConfigReader, config: Mapping[str, Any], width: int) -> tuple[int, int]:
    params, patches = _tower(vision, is_clip=True)
    return params + _linear(vision.size("hidden_size"), width) + _linear(width, width), patches


def _llava_next(vision: ConfigReader, config: Mapping[str, Any], width: int) -> tuple[int, int]:
    params, patches = _llava(vision, config, width)
    return params + width, _NEXT_TILES * patches  # one learnt vector ends each row of tiles


def _gemma3(vision: ConfigReader, config: Mapping[str, Any], width: int) -> tuple[int, int]:
    params, _patches = _tower(vision, is_clip=False)
    tokens = ConfigReader({"mm_tokens_per_image": 256, **config}, vision.place).size("mm_tokens_per_image")
    return params + vision.size("hidden_size") * (width + 1), tokens


def _paligemma(vision: ConfigReader, config: Mapping[str, Any], width: int) -> tuple[int, int]:
    params, patches = _tower(vision, is_clip=False)
    return params + _linear(vision.size("hidden_size"), width), patches


_COUNTS: Final[dict[str, Callable[[ConfigReader, Mapping[str, Any], int], tuple[int, int]]]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "llava": _llava,
    "llava_next": _llava_next,
    "gemma3": _gemma3,
    "paligemma": _paligemma,
}
# Of the config classes of transformers, which files leave out where they agree
_QWEN: Final = {"depth": 32, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}
_CLIP: Final = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "image_size": 336,
    "patch_size": 14,
}
_SIGLIP: Final = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "image_size": 224,
    "patch_size": 14,
}
_DEFAULTS: Final[dict[str, Mapping[str, int]]] = {
    "qwen2_vl": {**_QWEN, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584},
    "qwen2_5_vl": {**_QWEN, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
    "llava": _CLIP,
    "llava_next": _CLIP,
    "gemma3": {**_SIGLIP, "image_size": 896},
    "paligemma": _SIGLIP,
}
_WIDTHS: Final = {"llama": 4096, "mistral": 4096, "qwen2": 4096, "gemma3_text": 2304, "gemma": 3072}
