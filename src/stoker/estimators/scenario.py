"""What one estimate is about: a ledger under a run configuration on a cluster, and the batches it will see.

Batches are counted in computed tokens (padding included): the mean one prices time, the fullest one memory (case 8).
"""

from dataclasses import dataclass

from stoker.core.efficiency import Correction, Efficiency
from stoker.core.hardware import Cluster
from stoker.core.job import Job, Task
from stoker.core.ledger import Ledger
from stoker.core.profile import LengthDistribution
from stoker.core.run_config import RunConfig
from stoker.core.stack import OURS, Stack
from stoker.estimators.ledger_sums import LedgerSums
from stoker.techniques.packing import packing


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of a rank: `samples`, computed `tokens` (a share of them under context parallel), and the
    `seq_len` that attention runs over.
    """

    samples: float
    tokens: float
    seq_len: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Inputs of every estimate. `lengths` are already cut at the job's seq_len; `sums` are the ledger's.

    `products`: format of matrix products that a table states and no precision of ours has (tf32; fp8 or fp4 inside
    blocks); "": the ledger's. `native_attention`: fused kernels written for the device's own generation
    (FlashAttention 3, cuDNN), where FlashAttention 2 is written for Ampere's instructions. `num_assumed`: things that
    plans assume about the model, each of which widens the intervals.
    """

    task: Task
    optimizer: str
    ledger: Ledger
    sums: LedgerSums
    config: RunConfig
    cluster: Cluster
    lengths: LengthDistribution
    efficiency: Efficiency
    correction: Correction | None = None
    stack: Stack = OURS
    products: str = ""
    native_attention: bool = False
    num_assumed: int = 0

    @property
    def is_image(self) -> bool:
        return self.ledger.arch.modality == "image"


def cut_lengths(job: Job, lengths: LengthDistribution, limit: int | None) -> LengthDistribution:
    """`lengths` as training sees them: cut at train.seq_len, else at the model's own limit, at most 512 or 2048."""
    longest = job.train.seq_len
    if longest is None:
        usual = 2048 if job.task == "causal_lm" else 512
        longest = min(usual, limit) if limit else usual
    return lengths.truncated(float(longest))


def fullest_batch(scenario: Scenario) -> Batch:
    """The micro-batch that sets the memory peak: the longest samples of the data set together."""
    size = scenario.config.micro_batch_size
    if scenario.is_image:
        return _images(scenario, size)
    tokens, seq_len = packing(scenario.config.packing).peak_tokens(scenario.lengths, size)
    return Batch(samples=size, tokens=tokens / scenario.ledger.token_shards, seq_len=seq_len)


def mean_batch(scenario: Scenario) -> Batch:
    """The micro-batch whose time, times the number of micro-batches, is the time of an epoch."""
    size = scenario.config.micro_batch_size
    if scenario.is_image:
        return _images(scenario, size)
    if scenario.stack.pads_by_batch:
        tokens = size * scenario.lengths.expected_longest(size)
    else:
        tokens = packing(scenario.config.packing).mean_tokens(scenario.lengths, size, scenario.config.global_batch_size)
    return Batch(samples=size, tokens=tokens / scenario.ledger.token_shards, seq_len=tokens / size)


def _images(scenario: Scenario, size: int) -> Batch:
    per_sample = float(scenario.ledger.arch.tokens_per_sample or 1)
    return Batch(samples=size, tokens=size * per_sample, seq_len=per_sample)
