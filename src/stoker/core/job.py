"""The job: what to train, on what data, how, toward which goal. One dataclass a section of the job file.

Each field's `metadata` holds its sentence for people (`doc`) and its bounds (`gt ge lt le`); the validator and the
published JSON schema are made from these (`job_schema`), so a key is described once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Task = Literal["causal_lm", "text_classification", "image_classification"]
Problem = Literal["single_label", "multi_label"]
Method = Literal["full", "lora", "dora", "qlora"]
OptimizerName = Literal["adamw", "sgd", "adamw_8bit", "paged_adamw", "paged_adamw_8bit", "adafactor", "lion", "muon"]


def key(default: Any = ..., *, doc: str, **bounds: float) -> Any:
    """A job-file key: its default (`...`: required), its sentence, its bounds (gt, ge, lt, le)."""
    metadata = {"doc": doc, **bounds}
    if default is ...:
        return field(metadata=metadata)
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFields:
    """Where a causal-LM sample's text comes from, when it is not one column."""

    prompt: str | None = key(None, doc="column of the prompt; no loss on it")
    response: str | None = key(None, doc="column of the answer; the loss is on it")
    messages: str | None = key(None, doc="column of a chat: a list of {role, content}; loss on the assistant's turns")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """data: files and columns, or declared sizes for planning without data."""

    train: str | None = key(None, doc="csv, tsv, jsonl or parquet file, image folder, or hub data set")
    eval: str | None = key(None, doc="validation file or folder of the same form")
    test: str | None = key(None, doc="test file: scored once at the end with the best checkpoint")
    eval_frac: float | None = key(None, doc="share of the training rows held out for validation", gt=0, lt=1)
    split: str | None = key(None, doc="column that says train, valid or test")
    text: str | TextFields | None = key(None, doc="text column; or {prompt, response}; or {messages}")
    text_pair: str | None = key(None, doc="second text column, for sentence pairs")
    image: str | None = key(None, doc="column of image paths, where the data is a table")
    labels: list[str] | str | None = key(None, doc="0/1 label columns (multi_label), or one label column")
    label_names: list[str] | None = key(None, doc="allowed values of the label column; others are an error")
    encoding: str | None = key(None, doc="text encoding; by default UTF-8 (also with BOM), UTF-16 by BOM, then cp949")
    normalise: Literal["nfc", "none"] = key("nfc", doc="compose decomposed Hangul (nfc) or leave text as it is")
    template: str | None = key(None, doc="causal_lm: text with {column} places, instead of a chat template")
    loss_on: Literal["response", "all"] = key("response", doc="causal_lm: which tokens the loss counts")
    drop_duplicates: bool = key(False, doc="drop repeated training rows; by default they are only counted")
    num_samples: int | None = key(None, doc="planning without data: number of training samples", ge=1, le=10**12)
    num_eval_samples: int | None = key(None, doc="planning without data: number of evaluation samples", ge=0, le=10**12)
    tokens_mean: float | None = key(None, doc="planning without data: mean tokens per sample", ge=1, le=10**8)
    tokens_p99: float | None = key(None, doc="planning without data: 99th percentile of tokens", ge=1, le=10**8)
    tokens_max: float | None = key(None, doc="planning without data: longest sample in tokens", ge=1, le=10**8)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSpec:
    """tune: which weights learn."""

    method: Method = key("full", doc="full, lora, dora or qlora")
    freeze: list[str] = key([], doc="module name prefixes that do not learn, such as embeddings")
    pooling: Literal["auto", "first", "mean", "max", "last"] = key(
        "auto", doc="how an encoder's tokens become one vector; auto: what the model was trained with"
    )
    rank: int = key(16, doc="LoRA rank", ge=1, le=4096)
    alpha: float = key(32.0, doc="LoRA scale: alpha / rank", gt=0, le=10**6)
    dropout: float = key(0.0, doc="LoRA dropout", ge=0, lt=1)
    targets: Literal["all-linear", "attention"] | list[str] = key(
        "all-linear", doc="linears that get an adapter: all-linear, attention, or names"
    )
    merge: bool = key(False, doc="merge the adapter into the saved model")
    double_quant: bool = key(False, doc="qlora: quantise the scales of the 4-bit blocks too (0.516 bytes, not 0.5625)")
    unquantised: Literal["16bit", "fp32"] = key(
        "16bit",
        doc="qlora: format of what stays unquantised (embeddings, norms, head): 16bit, or fp32 as peft's "
        "prepare_model_for_kbit_training leaves it",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSpec:
    """train: the learning curve. Nothing that stoker tunes changes it."""

    epochs: float = key(3.0, doc="passes over the training data", gt=0, le=10000)
    max_steps: int | None = key(None, doc="stop after this many optimizer steps", ge=1, le=10**12)
    global_batch_size: int = key(32, doc="samples of one optimizer step, over all GPUs", ge=1, le=10**7)
    seq_len: int | None = key(
        None,
        doc="longest sample in tokens, longer ones are cut; default: the model's, at most 512 "
        "(classification) or 2048 (causal_lm)",
        ge=1,
        le=10**8,
    )
    image_size: int | None = key(None, doc="edge of the square image in pixels; default: the model's", ge=8, le=4096)
    lr: float = key(2e-5, doc="peak learning rate", gt=0, le=100)
    head_lr: float | None = key(None, doc="learning rate of a fresh head; default: lr", gt=0, le=100)
    layer_lr_decay: float = key(1.0, doc="learning rate factor per layer downward", gt=0, le=1)
    schedule: Literal["linear", "cosine", "constant"] = key("linear", doc="learning rate after warm-up")
    warmup_frac: float = key(0.06, doc="share of the steps spent warming up", ge=0, lt=1)
    weight_decay: float = key(0.01, doc="decoupled weight decay; none on biases and norms", ge=0, lt=1)
    max_grad_norm: float = key(1.0, doc="clip the true gradient's norm here; 0 switches clipping off", ge=0, le=10**9)
    optimizer: OptimizerName = key(
        "adamw",
        doc="optimizer: adamw, sgd, adamw_8bit, paged_adamw, paged_adamw_8bit (bitsandbytes), adafactor, lion or muon; "
        "another one learns otherwise, so stoker never switches it by itself",
    )
    class_weights: Literal["none", "balanced"] = key("none", doc="weigh rare labels up in the loss")
    early_stop: int | None = key(None, doc="stop after this many evaluations without a better metric", ge=1, le=10**9)
    seed: int = key(0, doc="seed of data order, initialisation and dropout", ge=0, le=2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSpec:
    """eval: when, and which metric says what is best."""

    every: int | Literal["epoch"] = key("epoch", doc="optimizer steps between evaluations, or epoch", ge=1, le=10**12)
    metric: Literal["auto", "f1_macro", "f1_micro", "lrap", "accuracy", "loss", "perplexity"] = key(
        "auto", doc="what best means; auto: f1_macro (multi_label), accuracy (single_label), loss (causal_lm)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSpec:
    """save: when, and what is kept."""

    every: int | str = key(
        "epoch", doc="optimizer steps, minutes such as 10m, epoch, or auto (Young/Daly)", ge=1, le=10**12
    )
    keep: int = key(2, doc="complete checkpoints to keep; the best one and the last one always stay", ge=1, le=10000)
    best: bool = key(True, doc="keep the checkpoint with the best metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeSpec:
    """A folder on flash and how much of it may be used."""

    dir: str = key(doc="folder on the flash disk")
    gb: float = key(doc="GB (1e9 bytes) that may be used there", gt=0, le=10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareSpec:
    """hardware: where the job may run."""

    gpus: list[str] | None = key(None, doc="GPU names to consider; default: what clouds rent for training")
    max_gpus: int = key(8, doc="most GPUs of one job", ge=1, le=100000)
    num_gpus: int | None = key(None, doc="exactly this many GPUs", ge=1, le=100000)
    nodes: int = key(1, doc="number of machines", ge=1, le=10000)
    providers: Literal["any"] | list[str] = key("any", doc="clouds to consider")
    regions: Literal["any"] | list[str] = key("any", doc="regions to consider")
    spot: Literal["allowed", "only", "never"] = key("allowed", doc="whether spot prices count")
    here: bool = key(False, doc="this machine: its GPU, or its CPU where it has none")
    hbm_gb: float | None = key(None, doc="cap on GPU memory in GB (1e9 bytes)", gt=0, le=10**9)
    dram_gb: float | None = key(None, doc="cap on host memory for state and activations in GB", gt=0, le=10**9)
    nvme: NvmeSpec | None = key(None, doc="flash tier: {dir, gb}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalSpec:
    """goal: what to minimise, within which limits."""

    minimise: Literal["cost", "time"] = key("cost", doc="cost or time")
    deadline_hours: float | None = key(None, doc="latest finish, hours from the start", gt=0, le=10**7)
    budget_usd: float | None = key(None, doc="most that the run may cost, USD", gt=0, le=10**9)
    currency: Literal["USD", "KRW"] = key("USD", doc="currency of what is shown")
    vat_frac: float = key(0.0, doc="value-added tax to add, such as 0.1", ge=0, lt=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSpec:
    """run.parallel: pinned degrees."""

    dp_replicate: int = key(1, doc="data-parallel copies (DDP)", ge=1, le=10**6)
    dp_shard: int = key(1, doc="ranks that share one sharded copy (FSDP)", ge=1, le=10**6)
    cp: int = key(1, doc="context parallel", ge=1, le=10**6)
    tp: int = key(1, doc="tensor parallel", ge=1, le=10**6)
    pp: int = key(1, doc="pipeline stages", ge=1, le=10**6)
    ep: int = key(1, doc="expert parallel, carved out of the ranks of the others", ge=1, le=10**6)
    zero_stage: Literal[1, 2, 3] = key(3, doc="what dp_shard shards: 1 optimizer state, 2 also gradients, 3 all (FSDP)")
    virtual_stages: int = key(1, doc="chunks of layers of a pipeline stage (more than 1: interleaved)", ge=1, le=10**6)
    context: Literal["ring", "ulysses"] = key("ring", doc="how context parallel exchanges keys and values")
    kind: Literal["auto", "data_parallel", "layer_split"] = key(
        "auto",
        doc="auto, data_parallel (torch.nn.DataParallel, dp_replicate GPUs) or layer_split (device_map, pp GPUs)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPins:
    """run: optional pins. What is pinned is not searched; auto is."""

    precision: Literal["auto", "bf16", "bf16_amp", "bf16_pure", "fp16_amp", "fp32", "fp8"] = key(
        "auto", doc="number format; fp8: bf16 with products in fp8, which auto never chooses"
    )
    micro_batch_size: int | Literal["auto"] = key("auto", doc="samples of one forward on one GPU", ge=1, le=10**7)
    recompute: Literal["auto", "none", "selective", "full", "offloaded"] = key(
        "auto",
        doc="activation checkpointing: none, selective (every second matrix product kept), full, or offloaded (full, "
        "with block inputs in host memory)",
    )
    parallel: ParallelSpec | Literal["auto"] = key("auto", doc="parallel degrees")
    placement: Literal["auto", "hbm", "tiers"] = key("auto", doc="where the training state lives")
    loss: Literal["auto", "eager", "chunked", "liger", "cce"] = key("auto", doc="loss kernel")
    attention: Literal["auto", "eager", "sdpa", "flash"] = key("auto", doc="attention kernel")
    packing: Literal["auto", "none", "bucketed", "packed"] = key("auto", doc="how samples become batches")
    capture: Literal["auto", "none", "compile"] = key("auto", doc="compile the step or not")
    workers: int | Literal["auto"] = key("auto", doc="data loader processes", ge=0, le=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A validated job file. Paths are as written; `resolve_path` makes them absolute.

    `base_dir`: folder of the job file. `source_path`: the file itself. Neither is a key.
    """

    model: str | Mapping[str, Any] = key(
        doc="hub id, local folder, config.json, bundled name (llama-3.1-8b), or an inline shape {family: electra, ...}"
    )
    task: Task = key(doc="causal_lm, text_classification or image_classification")
    data: DataSpec = key(doc="what to learn from")
    tokenizer: str | None = key(None, doc="folder or file of a tokenizer, where the model brings none")
    problem: Problem = key("single_label", doc="single_label or multi_label")
    tune: TuneSpec = key(TuneSpec(), doc="which weights learn")
    train: TrainSpec = key(TrainSpec(), doc="the learning curve")
    eval: EvalSpec = key(EvalSpec(), doc="evaluation")
    save: SaveSpec = key(SaveSpec(), doc="checkpoints")
    track: list[Literal["tensorboard", "mlflow", "wandb", "trackio"]] = key([], doc="trackers beside the record")
    hardware: HardwareSpec = key(HardwareSpec(), doc="where the job may run")
    goal: GoalSpec = key(GoalSpec(), doc="what to minimise")
    run: RunPins = key(RunPins(), doc="pins")
    base_dir: str = field(default=".", metadata={"internal": True})
    source_path: str = field(default="", metadata={"internal": True})

    @property
    def metric(self) -> str:
        """The metric that decides what is best, `auto` resolved."""
        if self.eval.metric != "auto":
            return self.eval.metric
        if self.task == "causal_lm":
            return "loss"
        return "f1_macro" if self.problem == "multi_label" else "accuracy"

    @property
    def num_declared_labels(self) -> int | None:
        """Label count as far as the job file itself says it."""
        if self.data.label_names is not None:
            return len(self.data.label_names)
        return len(self.data.labels) if isinstance(self.data.labels, list) else None
