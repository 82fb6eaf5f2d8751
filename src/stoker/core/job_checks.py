"""Combinations of keys that cannot work, each a function. All need nothing but the job itself."""

import math
from collections.abc import Callable, Iterator, Mapping

from stoker.core.errors import JobFileError
from stoker.core.i18n import _
from stoker.core.job import Job, ParallelSpec, Task

Places = Callable[..., str]
Problem = tuple[tuple[str, ...], str, str]
_TEXT: tuple[Task, ...] = ("causal_lm", "text_classification")
_CLASSES: tuple[Task, ...] = ("text_classification", "image_classification")
# keys that only some tasks read: which ones, and the value that says nothing
_TASKS_OF_KEYS: Mapping[tuple[str, str], tuple[tuple[Task, ...], object]] = {
    ("data", "text"): (_TEXT, None),
    ("data", "text_pair"): (("text_classification",), None),
    ("data", "template"): (("causal_lm",), None),
    ("data", "loss_on"): (("causal_lm",), "response"),
    ("data", "image"): (("image_classification",), None),
    ("tune", "pooling"): (("text_classification",), "auto"),
    ("train", "seq_len"): (_TEXT, None),
    ("train", "image_size"): (("image_classification",), None),
    ("train", "head_lr"): (_CLASSES, None),
    ("train", "class_weights"): (_CLASSES, "none"),
    ("run", "loss"): (("causal_lm",), "eager"),
    ("run", "workers"): (("image_classification",), 0),
}


_MOST_MINUTES = 10**7  # 19 years


def check_job(job: Job, places: Places) -> None:
    """Raises JobFileError ST013 for the first impossible combination."""
    for check in (_task, _belongs, _labels, _text, _data_source, _splits, _hardware, _batch, _save_every):
        for path, problem, fix in check(job):
            raise JobFileError("ST013", problem, place=places(*path), fix=fix)


def _task(job: Job) -> Iterator[Problem]:
    classification = job.task != "causal_lm"
    if job.problem == "multi_label" and not classification:
        yield (
            ("problem",),
            _("multi_label belongs to classification, the task is causal_lm"),
            _("remove the key problem"),
        )
    metrics = {"causal_lm": ("loss", "perplexity")}.get(job.task, ("f1_macro", "f1_micro", "lrap", "accuracy", "loss"))
    if job.metric not in metrics:
        yield (
            ("eval", "metric"),
            _("{metric} is not a metric of {task}").format(metric=job.metric, task=job.task),
            _("one of: {names}").format(names=", ".join(metrics)),
        )
    for name in ("freeze", "targets"):
        names = getattr(job.tune, name)
        if isinstance(names, list) and any(not one.strip() for one in names):
            yield ("tune", name), _("an empty name stands for nothing, or for everything"), _("name a module")
    if job.tune.method == "full" and job.tune.merge:
        yield (
            ("tune", "merge"),
            _("there is no adapter to merge under full tuning"),
            _("remove merge, or use tune.method: lora"),
        )


def _belongs(job: Job) -> Iterator[Problem]:
    """A key of another task would be passed over in silence, so it is refused; its default may stand anywhere."""
    for (section, name), (tasks, default) in _TASKS_OF_KEYS.items():
        value = getattr(getattr(job, section), name)
        if job.task not in tasks and value not in (default, "auto"):
            yield (
                (section, name),
                _("{key} has no effect on {task}: it belongs to {tasks}").format(
                    key=f"{section}.{name}", task=job.task, tasks=", ".join(tasks)
                ),
                _("remove the key"),
            )


def _labels(job: Job) -> Iterator[Problem]:
    labels, names = job.data.labels, job.data.label_names
    if job.task == "causal_lm":
        if labels is not None:
            yield (
                ("data", "labels"),
                _("causal_lm has no labels"),
                _("remove data.labels, or change the task"),
            )
        return
    if job.task == "text_classification" and labels is None:
        yield (
            ("data",),
            _("text_classification needs data.labels"),
            _("name the label column, or the list of 0/1 columns"),
        )
    if isinstance(labels, list) and len(labels) != len(set(labels)):
        yield ("data", "labels"), _("a label stands twice"), _("name each label once")
    if isinstance(labels, list) and job.problem == "single_label":
        yield (
            ("data", "labels"),
            _("several label columns mean multi_label, the problem is single_label"),
            _("set problem: multi_label, or name one label column"),
        )
    if job.problem == "multi_label" and (not isinstance(labels, list) or len(labels) < 1):
        yield (
            ("data",),
            _("multi_label needs the list of 0/1 label columns in data.labels"),
            _("data.labels: [a, b, c]"),
        )
    if names is not None and (len(names) < 2 or len(set(names)) != len(names)):
        yield (
            ("data", "label_names"),
            _("label names must be at least two, each once"),
            _("list every class once"),
        )


def _text(job: Job) -> Iterator[Problem]:
    text = job.data.text
    if text is None or isinstance(text, str):
        if text is None and job.data.train and job.task != "image_classification" and not job.data.template:
            yield ("data",), _("data.text is missing: which column is the text?"), _("data.text: COLUMN")
        return
    if job.task != "causal_lm":
        yield ("data", "text"), _("prompt, response and messages belong to causal_lm"), _("data.text: COLUMN")
    pair, chat = (text.prompt, text.response), text.messages
    if bool(chat) == any(pair) or (any(pair) and not all(pair)):
        yield (
            ("data", "text"),
            _("give either prompt and response, or messages"),
            _("data.text: {{prompt: question, response: answer}}").replace("{{", "{").replace("}}", "}"),
        )


def _data_source(job: Job) -> Iterator[Problem]:
    data = job.data
    if data.train is None and data.num_samples is None:
        yield (
            ("data",),
            _("there is neither data.train nor data.num_samples"),
            _("name the training file, or declare num_samples and token lengths to plan without data"),
        )
    lengths = (data.tokens_mean, data.tokens_p99, data.tokens_max)
    if data.train is None and job.task != "image_classification" and data.tokens_mean is None:
        yield (
            ("data",),
            _("planning without data needs the token lengths"),
            _("add tokens_mean, tokens_p99 and tokens_max"),
        )
    mean, p99, longest = lengths
    # a few very long samples may lift the mean above the 99th percentile (case 8), but not above this
    ends = [value for value in (p99, longest) if value is not None]
    most = 0.99 * ends[0] + 0.01 * ends[-1] if ends else math.inf
    if ends != sorted(ends) or (mean or 0.0) > most * (1.0 + 1e-9):
        yield (
            ("data",),
            _("tokens_mean, tokens_p99 and tokens_max contradict each other"),
            _("no percentile is above the longest, and no mean above 99 % of the percentile and 1 % of the longest"),
        )


def _splits(job: Job) -> Iterator[Problem]:
    data = job.data
    given = [name for name in ("eval", "eval_frac", "split") if getattr(data, name) is not None]
    if len(given) > 1:
        yield (
            ("data", given[1]),
            _("{a} and {b} exclude each other").format(a=given[0], b=given[1]),
            _("keep one of them"),
        )
    if data.train and not given and job.train.early_stop:
        yield (
            ("train", "early_stop"),
            _("early stopping needs validation data"),
            _("add data.eval, data.eval_frac or data.split"),
        )


def _hardware(job: Job) -> Iterator[Problem]:
    hw = job.hardware
    if hw.here and (hw.gpus or hw.nodes > 1):
        yield (
            ("hardware", "here"),
            _("here means this machine: gpus and nodes do not go with it"),
            _("keep one of them"),
        )
    if hw.nodes > hw.max_gpus:
        yield (
            ("hardware", "max_gpus"),
            _("{nodes} machines with at most {num} GPUs in all").format(nodes=hw.nodes, num=hw.max_gpus),
            _("raise hardware.max_gpus, which counts the GPUs of all machines, or lower hardware.nodes"),
        )
    if hw.num_gpus and hw.num_gpus > hw.max_gpus:
        yield ("hardware", "num_gpus"), _("num_gpus is above max_gpus"), _("raise hardware.max_gpus")
    if hw.num_gpus and hw.num_gpus % hw.nodes:
        yield (
            ("hardware", "num_gpus"),
            _("num_gpus does not divide over the nodes"),
            _("use a multiple of hardware.nodes"),
        )
    if hw.gpus is not None and not hw.gpus:
        yield ("hardware", "gpus"), _("the list is empty"), _("name a GPU, or remove the key")
    for name in ("providers", "regions"):
        if not getattr(hw, name):
            yield ("hardware", name), _("the list is empty"), _("name one, or remove the key")
    pinned = job.run.parallel
    if isinstance(pinned, ParallelSpec) and hw.num_gpus:
        world = pinned.dp_replicate * pinned.dp_shard * pinned.cp * pinned.tp * pinned.pp
        if world != hw.num_gpus:
            yield (
                ("run", "parallel"),
                _("the degrees multiply to {world}, num_gpus is {num}").format(world=world, num=hw.num_gpus),
                _("make them equal"),
            )


def _batch(job: Job) -> Iterator[Problem]:
    micro, batch = job.run.micro_batch_size, job.train.global_batch_size
    pinned = job.run.parallel
    ranks = pinned.dp_replicate * pinned.dp_shard if isinstance(pinned, ParallelSpec) else 1
    unit = (micro if isinstance(micro, int) else 1) * ranks
    if batch % unit:
        below = batch - batch % unit or unit
        yield (
            ("train", "global_batch_size"),
            _("{batch} is not divisible by micro_batch_size x data-parallel ranks = {unit}").format(
                batch=batch, unit=unit
            ),
            _("use {value}, or change run.micro_batch_size").format(value=below),
        )


def _save_every(job: Job) -> Iterator[Problem]:
    every = job.save.every
    if isinstance(every, str) and every not in ("auto", "epoch") and save_minutes(every) is None:
        yield (
            ("save", "every"),
            _("{value} is neither steps, minutes, epoch nor auto").format(value=repr(every)),
            _("for example 500, 10m or auto"),
        )
    if job.save.best and job.eval.metric in ("f1_macro", "f1_micro", "lrap") and job.task == "causal_lm":
        yield ("eval", "metric"), _("this metric needs labels"), _("use loss")


def save_minutes(text: str) -> float | None:
    """Minutes of a text such as `10m` or `2h`; None when it is no duration."""
    factor = {"m": 1.0, "h": 60.0, "s": 1.0 / 60.0}.get(text[-1:].lower())
    try:
        value = float(text[:-1]) * factor if factor else 0.0
    except ValueError:
        return None
    return value if 0 < value <= _MOST_MINUTES else None
