"""Which model `job.model` means: inline shape, folder, config.json, bundled name or hub id in the local cache.

The order: what exists on disk wins, then the local Hugging Face cache, then the shapes that ship with stoker.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.catalogue.models import FAMILIES
from stoker.catalogue.models.family import Family
from stoker.catalogue.models.lookup.bundled import BundledModel, find_bundled, nearest_bundled
from stoker.catalogue.models.lookup.config_file import check_inline_keys, read_config
from stoker.catalogue.models.lookup.hub_cache import cached_snapshot, looks_like_hub_id
from stoker.catalogue.models.lookup.weights import check_weights
from stoker.core.errors import ModelError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel

if TYPE_CHECKING:
    from stoker.catalogue.models.lookup.vision import VisionModel

_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
# Keys that any Hugging Face config may carry and that leave the shape alone
_NEUTRAL = frozenset(
    (
        "architectures",
        "initializer_range",
        "layer_norm_eps",
        "rms_norm_eps",
        "layer_norm_epsilon",
        "norm_eps",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "classifier_dropout",
        "use_cache",
        "torch_dtype",
        "dtype",
        "id2label",
        "label2id",
        "num_labels",
        "head_dim",
        "partial_rotary_factor",
        "rotary_pct",
        "rotary_emb_base",
        "problem_type",
        "global_attn_every_n_layers",
        "position_buckets",
        "norm_rel_ebd",
        "share_att_key",
        "layer_types",
    )
)


def resolve_source(job: Job) -> ResolvedModel:
    """The model that `job.model` names, with its config. Raises ModelError (ST2xx)."""
    if not isinstance(job.model, str):
        return _inline(job, job.model)
    text = job.model.strip()
    if not text:
        raise _unknown(job, "''")
    path = _local_path(text, job.base_dir)
    if path is not None and path.is_dir():
        return _from_folder(job, path)
    if path is not None and path.is_file():
        return _from_config_file(job, path)
    if _is_path(text):
        raise ModelError(
            "ST202",
            _("there is no model folder or config.json at {name}").format(name=text),
            place=f"{job.source_path} model".strip(),
            fix=_("check the path; paths in a job file are relative to that file"),
        )
    return _by_name(job, text)


def _inline(job: Job, shape: Mapping[str, Any]) -> ResolvedModel:
    """Random weights of a shape written into the job file."""
    wanted = str(shape.get("model_type", shape.get("family", "")))
    family, model_type = _family_named(wanted, job.source_path)
    known = frozenset(family.model_types[model_type]) | frozenset(family.renamed) | frozenset(family.renamed.values())
    given = {key: value for key, value in shape.items() if key not in ("family", "model_type")}
    check_inline_keys(given, known | _NEUTRAL, f"{job.source_path} model".strip())
    own_names = {common: own for own, common in family.renamed.items() if own in family.model_types[model_type]}
    config = {**family.model_types[model_type], **{own_names.get(k, k): v for k, v in given.items()}}
    return ResolvedModel(
        name=f"inline {model_type}",
        config={"model_type": model_type, **config},
        tokenizer=_tokenizer(job, None),
        random_weights=True,
        notes=(_("inline shape: the weights start random"),),
    )


def _family_named(wanted: str, place: str) -> tuple[Family, str]:
    for family in FAMILIES:
        if wanted in family.model_types:
            return family, wanted
    for family in FAMILIES:
        if wanted == family.name:
            return family, next(iter(family.model_types))
    names = sorted(name for family in FAMILIES for name in family.model_types)
    raise ModelError(
        "ST204",
        _("an inline shape needs a known family, this is {value}").format(value=repr(wanted)[:60]),
        place=f"{place} model.family".strip(),
        fix=_("supported: {names}").format(names=", ".join(names)),
    )


def _from_folder(job: Job, folder: Path) -> ResolvedModel:
    config = read_config(folder / "config.json")
    vision = _with_tower(config, folder / "config.json")
    if vision is not None:
        return _planned(job, str(job.model), vision, folder)
    check_weights(folder)
    return ResolvedModel(
        name=job.model if isinstance(job.model, str) else folder.name,
        config=config,
        folder=str(folder),
        tokenizer=_tokenizer(job, folder),
        notes=_remote_code_note(config),
    )


def _from_config_file(job: Job, path: Path) -> ResolvedModel:
    config = read_config(path)
    vision = _with_tower(config, path)
    if vision is not None:
        return _planned(job, str(job.model), vision, path.parent)
    return ResolvedModel(
        name=str(job.model),
        config=config,
        tokenizer=_tokenizer(job, path.parent),
        random_weights=True,
        notes=(_("only a config was named: the weights start random"), *_remote_code_note(config)),
    )


def _by_name(job: Job, text: str) -> ResolvedModel:
    """A bundled name, or a hub id in the local cache."""
    bundled = find_bundled(text)
    snapshot = cached_snapshot(bundled.hub_id if bundled else text)
    if snapshot is not None:
        return _from_cache(job, text, snapshot)
    if bundled is None:
        return _vision_language(job, text)
    note = _("the weights of {name} are not on this machine: `stoker check JOB --download` fetches them")
    return ResolvedModel(
        name=_shown_name(text, bundled),
        config=dict(bundled.config),
        tokenizer=_tokenizer(job, None),
        notes=(note.format(name=bundled.hub_id),),
    )


def _vision_language(job: Job, text: str) -> ResolvedModel:
    """A vision-language model by name: their table is read only for names that mean nothing else."""
    from stoker.catalogue.models.lookup.vision import find_vision_language

    found = find_vision_language(text)
    if found is None:
        raise _unknown(job, text)
    return _planned(job, found.hub_id if "/" in text else text, found, None)


def _with_tower(config: Mapping[str, Any], path: Path) -> "VisionModel | None":
    if "vision_config" not in config:
        return None
    from stoker.catalogue.models.lookup.vision import read_vision_language

    return read_vision_language(config, str(path))


def _planned(job: Job, name: str, vision: "VisionModel", folder: Path | None) -> ResolvedModel:
    """A model that is priced only: no weights are looked for."""
    return ResolvedModel(
        name=name,
        config=dict(vision.config),
        tokenizer=_tokenizer(job, folder),
        notes=(vision.note(name),),
        is_approximate=True,
    )


def _shown_name(text: str, bundled: BundledModel) -> str:
    return bundled.hub_id if text.casefold() == bundled.hub_id.casefold() else text


def _from_cache(job: Job, text: str, snapshot: Path) -> ResolvedModel:
    config = read_config(snapshot / "config.json")
    vision = _with_tower(config, snapshot / "config.json")
    if vision is not None:
        return _planned(job, text, vision, snapshot)
    notes = list(_remote_code_note(config))
    folder: str | None = str(snapshot)
    try:
        check_weights(snapshot)
    except ModelError as error:
        if error.code == "ST208":
            raise
        folder = None
        notes.append(
            _("the cached copy of {name} is incomplete: `stoker check JOB --download` fetches the rest").format(
                name=text
            )
        )
    return ResolvedModel(
        name=text, config=config, folder=folder, tokenizer=_tokenizer(job, snapshot), notes=tuple(notes)
    )


def _remote_code_note(config: Mapping[str, Any]) -> tuple[str, ...]:
    if not config.get("auto_map"):
        return ()
    return (_("the model brings code of its own (auto_map): ignored, transformers' own class is used"),)


def _tokenizer(job: Job, folder: Path | None) -> str | None:
    """Folder or file of the tokenizer: the job's own, else the model's. Raises ModelError ST211 for a missing one."""
    if job.tokenizer is None:
        brings = folder is not None and any((folder / name).is_file() for name in _TOKENIZER_FILES)
        return str(folder) if brings else None
    path = _local_path(job.tokenizer, job.base_dir)
    if path is not None and path.exists():
        return str(path)
    snapshot = None if _is_path(job.tokenizer) else cached_snapshot(job.tokenizer)
    if snapshot is not None:
        return str(snapshot)
    raise ModelError(
        "ST211",
        _("there is no tokenizer at {name}").format(name=job.tokenizer),
        place=f"{job.source_path} tokenizer".strip(),
        fix=_("name a folder with tokenizer.json or vocab.txt, relative to the job file"),
    )


def _local_path(text: str, base_dir: str) -> Path | None:
    """`text` as a path that exists, or None."""
    try:
        path = Path(base_dir, Path(text).expanduser())
        return path.resolve() if path.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _is_path(text: str) -> bool:
    """Whether `text` can only be meant as a path."""
    return text.startswith((".", "/", "~", "\\")) or text.endswith(".json") or text.count("/") > 1 or text[1:3] == ":\\"


def _unknown(job: Job, text: str) -> ModelError:
    from stoker.catalogue.models.lookup.vision import nearest_vision_language

    near = [*nearest_vision_language(text), *nearest_bundled(text)][:3]
    hint = _("nearest that ship with stoker: {names}").format(names=", ".join(near)) if near else ""
    if looks_like_hub_id(text) and "/" in text:
        fetch = _("`stoker check JOB --download` fetches it from the hub")
        fix = "; ".join(part for part in (hint, fetch) if part)
    else:
        fix = hint or _("name a hub id (org/name), a model folder, a config.json or an inline shape")
    return ModelError(
        "ST201",
        _("{name} is neither on this machine nor among the shapes that ship with stoker").format(name=text),
        place=f"{job.source_path} model".strip(),
        fix=fix,
    )
