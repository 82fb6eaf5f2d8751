"""The model of a plan: loaded from a local folder or made from its config with seeded weights, with the head of the
task, the attention kernel, adapter, precision and recompute of the run configuration.

Never the network, never a pickle, never remote code. The techniques decide what they attach and convert.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel
from stoker.core.run_config import RunConfig
from stoker.engine.ordering import keyed_seed
from stoker.engine.pooled import PooledClassifier, Pooling
from stoker.engine.pooling import choose_pooling
from stoker.engine.positions import resample_positions
from stoker.engine.weights_check import weight_names
from stoker.techniques.adapter import adapter
from stoker.techniques.attention import attention
from stoker.techniques.names import plain_name
from stoker.techniques.precision import precision
from stoker.techniques.recompute import recompute

_FULL_PRECISION_LIMIT = 2_000_000_000  # parameters; larger models load in the dtype of their file


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModel:
    """`fresh`: names of parameters that no checkpoint gave. `pooling`: of our own head, None for the usual one.

    `network`: what was built before any adapter wrapped it; `model`: what is trained.
    """

    model: torch.nn.Module
    network: torch.nn.Module
    fresh: frozenset[str]
    pooling: Pooling | None
    num_params: int
    num_trainable_params: int


def build_model(job: Job, resolved: ResolvedModel, config: RunConfig, labels: Sequence[str]) -> BuiltModel:
    """The model on the CPU, ready for a device. Raises RunError ST410 to ST415 and what the techniques raise."""
    network, fresh, pooling = build_network(job, resolved, labels, attention(config.attention).hf_name)
    num_params = sum(p.numel() for p in network.parameters())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(job.train.seed, 0, 0, "adapter"))
        model = adapter(job.tune.method).attach(network, job.tune)
    precision(config.precision).convert(model)
    recompute(config.recompute).attach(model)
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise RunError(
            "ST415",
            _("no parameter learns"),
            place="tune.freeze",
            fix=_("freeze fewer modules"),
        )
    return BuiltModel(
        model=model,
        network=network,
        fresh=frozenset(name for name, _p in trainable if plain_name(name) in fresh),
        pooling=pooling,
        num_params=num_params,
        num_trainable_params=sum(p.numel() for _name, p in trainable),
    )


def build_network(
    job: Job, resolved: ResolvedModel, labels: Sequence[str], attention_name: str
) -> tuple[torch.nn.Module, frozenset[str], Pooling | None]:
    """(network, names of fresh parameters, pooling of our own head or None), in the dtype to start from."""
    quiet_transformers()
    folder = Path(resolved.folder) if resolved.folder and not resolved.random_weights else None
    if folder is None and not resolved.random_weights:
        raise RunError(
            "ST413",
            _("the weights of {name} are not on this machine").format(name=resolved.name),
            place=f"model: {job.model}",
            fix=_("fetch them with `stoker check --download`, or name a local folder"),
        )
    names = weight_names(folder) if folder else set()
    pooling: Pooling | None = None
    if job.task == "text_classification":
        pooling = choose_pooling(
            job.tune.pooling, name=resolved.name, folder=folder, config=resolved.config, weight_names=names
        )
    settings = _hf_config(job, resolved, labels)
    kind = _auto_class(job.task, pooled=pooling is not None)
    settings._attn_implementation = _attention_of(kind, settings, attention_name)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own advice about heads that we make on purpose
        torch.manual_seed(keyed_seed(job.train.seed, 0, 0, "weights"))
        network, fresh = _load(kind, settings, folder) if folder else _random(kind, settings)
        if pooling is not None:
            network, fresh = _with_pooled_head(network, len(labels), pooling)
    return network, fresh, pooling


def quiet_transformers() -> None:
    """No bars and no advice of transformers' own: our progress and notices say what matters."""
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _auto_class(task: str, *, pooled: bool) -> Any:
    import transformers

    if task == "causal_lm":
        return transformers.AutoModelForCausalLM
    if task == "image_classification":
        return transformers.AutoModelForImageClassification
    return transformers.AutoModel if pooled else transformers.AutoModelForSequenceClassification


def _attention_of(kind: Any, settings: Any, wanted: str) -> str:
    """`wanted`, or eager where the architecture has no such kernel: convolutions have none, some encoders only one."""
    architecture = kind._model_mapping.get(type(settings), None)
    has = {"sdpa": "_supports_sdpa", "flash_attention_2": "_supports_flash_attn"}.get(wanted)
    return wanted if has is None or getattr(architecture, has, False) else "eager"


def _hf_config(job: Job, resolved: ResolvedModel, labels: Sequence[str]) -> Any:
    """The Hugging Face config object with the task's labels in it. Raises RunError ST414."""
    from transformers import AutoConfig

    values = {k: v for k, v in resolved.config.items() if k not in ("model_type", "id2label", "label2id", "num_labels")}
    if job.train.image_size is not None:
        values["image_size"] = job.train.image_size
    if job.task != "causal_lm":
        values["id2label"] = dict(enumerate(labels))
        values["label2id"] = {name: i for i, name in enumerate(labels)}
        if job.task == "text_classification":
            one = "single_label_classification"
            values["problem_type"] = "multi_label_classification" if job.problem == "multi_label" else one
    try:
        config = AutoConfig.for_model(str(resolved.config.get("model_type", "")), **values)
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(
            "ST414",
            _("transformers cannot build this model: {error}").format(error=str(error).splitlines()[0][:200]),
            place=resolved.name,
            fix=_("check config.json's model_type, or install a newer transformers"),
        ) from error
    if getattr(config, "pad_token_id", None) is None and job.task == "text_classification":
        config.pad_token_id = _first_int(resolved.config.get("eos_token_id")) or 0
    return config


def _first_int(value: Any) -> int | None:
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) else None


def _random(kind: Any, settings: Any) -> tuple[torch.nn.Module, frozenset[str]]:
    network: torch.nn.Module = kind.from_config(settings, dtype=torch.float32)
    return network, frozenset()


def _load(kind: Any, settings: Any, folder: Path) -> tuple[torch.nn.Module, frozenset[str]]:
    """Weights from safetensors; heads of another size are made afresh. Raises RunError ST411, ST414."""
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    dtype = torch.float32 if size < 2 * _FULL_PRECISION_LIMIT else "auto"
    try:
        network, info = kind.from_pretrained(
            folder,
            config=settings,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            attn_implementation=settings._attn_implementation,
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise RunError(
            "ST414",
            _("transformers cannot load this model: {error}").format(error=str(error).splitlines()[0][:200]),
            place=str(folder),
            fix=_("check that the folder holds a whole model of the task's kind"),
        ) from error
    resized = {entry[0] for entry in info["mismatched_keys"]}
    missing = {*info["missing_keys"], *(resized - resample_positions(network, resized, folder))}
    _refuse_wrong_model(network, missing, folder)
    return network, frozenset(missing)


def _refuse_wrong_model(network: torch.nn.Module, missing: set[str], folder: Path) -> None:
    """A folder that fills less than half of the network is another model's (or a damaged one)."""
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    lost = sum(sizes.get(name, 0) for name in missing)
    if 2 * lost > sum(sizes.values()):
        example = sorted(missing)[0]
        raise RunError(
            "ST411",
            _("{frac:.0%} of the parameters are not in the weights, for example {name}").format(
                frac=lost / sum(sizes.values()), name=example
            ),
            place=str(folder),
            fix=_("check that config.json and the weights belong together"),
        )


def _with_pooled_head(
    network: torch.nn.Module, num_labels: int, pooling: Pooling
) -> tuple[torch.nn.Module, frozenset[str]]:
    settings: Any = network.config
    dropout = getattr(settings, "classifier_dropout", None)
    if dropout is None:
        dropout = getattr(settings, "hidden_dropout_prob", 0.0)
    if getattr(network, "pooler", None) is not None:
        # its output is not used: without it no parameter stays without gradient
        setattr(network, "pooler", None)  # noqa: B010
    head = PooledClassifier(network, num_labels, pooling, float(dropout or 0.0))
    return head, frozenset(("classifier.weight", "classifier.bias"))
