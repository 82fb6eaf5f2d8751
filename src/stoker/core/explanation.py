"""Why a plan says what it says: each term with its formula, inputs and source, and what would make it smaller.

Values are SI (bytes, seconds). Texts are in the language in force; symbols are those of docs/math.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stoker.core.estimate import Source

Unit = Literal[
    "bytes", "s", "count", "bytes_per_param", "bytes_per_token", "bytes_per_s", "flops", "flops_per_s", "frac", "name"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of a formula: its `symbol` there, what it is, its value, and where that comes from."""

    symbol: str
    meaning: str
    value: float | str
    unit: Unit
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTerm:
    """One term of a sum: `formula` in symbols, `words` the same for people; `source`: its weakest input's."""

    name: str
    value: float
    formula: str
    words: str
    inputs: tuple[Input, ...]
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One change of the configuration, estimated anew; never a constant.

    `change`: keys of the job and their new values. `saved_bytes`: of the fullest rank (negative: it costs memory).
    `step_s`: a step with the change, `slower_frac` its price over the unchanged step (negative: it is faster).
    `changes_learning`: whether the learning curve is another one (optimizer, sequence length, method).
    `num_gpus`: what the changed configuration takes.
    """

    name: str
    text: str
    change: Mapping[str, str]
    saved_bytes: int
    expected_bytes: int
    fit_probability: float
    num_gpus: int
    step_s: float
    slower_frac: float
    changes_learning: bool

    @property
    def fits(self) -> bool:
        return self.fit_probability >= 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All of one candidate. `memory`, `phases`, `step` and `total` hold every term of its estimates, zeros left out.

    `tiers`: bytes outside the GPU (dram, nvme), where state lies there. `levers`: the largest first. `mfu_frac`: model
    FLOP/s over the dense peak, None with `mfu_note` where it is no figure. `sources`: the source of memory and time as
    a whole. `notes`: one sentence each on what is worth knowing.
    """

    rank: int
    memory: tuple[ExplainedTerm, ...]
    phases: tuple[ExplainedTerm, ...]
    step: tuple[ExplainedTerm, ...]
    total: tuple[ExplainedTerm, ...]
    tiers: tuple[ExplainedTerm, ...] = ()
    levers: tuple[Lever, ...] = ()
    mfu_frac: float | None = None
    mfu_note: str = ""
    model_flops_per_step: float = 0.0
    peak_flops_per_s: float = 0.0
    peak_name: str = ""
    sources: Mapping[str, Source] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
