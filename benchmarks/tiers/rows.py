"""The rows of the tier engine's table (issue 4): shape, tokens, caps, and what leaves the GPU, where no rule says."""

from dataclasses import dataclass, field, replace
from typing import Any

from stoker.core.run_config import TierShares

_LLAMA_3B = {"hidden_size": 3072, "num_hidden_layers": 28, "intermediate_size": 8192, "num_attention_heads": 24,
             "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True}  # fmt: skip
_LLAMA_8B = {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "num_attention_heads": 32,
             "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False}  # fmt: skip
_LLAMA_1B = {"hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 8192, "num_attention_heads": 32,
             "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True}  # fmt: skip
_TINY = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 128, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 512}  # fmt: skip
_OURS = TierShares(layer_major=True, exact_pinned=True, lossless_state=True, prefetch=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`micro_sequences` x `seq_len` tokens a micro-batch. `dram_gb`: budget for state and kept inputs.

    `shares`: what leaves the GPU; None: the engine's own rule fills the GPU (engine/tiers/placing.py).
    """

    name: str
    shape: dict[str, Any] = field(default_factory=dict)
    tokens_per_step: int
    seq_len: int = 2048
    micro_sequences: int = 8
    hbm_gb: float = 24.0
    dram_gb: float | None = None
    shares: TierShares | None = None

    @property
    def micro_batches(self) -> int:
        return max(1, self.tokens_per_step // (self.micro_sequences * self.seq_len))

    def tiny(self) -> "Row":
        """The same row for a CPU in a second: smoke only."""
        shape = {**_TINY, "tie_word_embeddings": self.shape["tie_word_embeddings"]}
        small = replace(self, shape=shape, seq_len=16, micro_sequences=2, tokens_per_step=32 * self.micro_batches)
        return replace(small, dram_gb=None)


ROWS = (
    # 16k tokens in one micro-batch: 6.4 GB weights + 6.4 gradients (inputs in them) + 3 of work leave 7 for state
    Row(name="W1", shape=_LLAMA_3B, tokens_per_step=16384),
    Row(name="W2", shape=_LLAMA_3B, tokens_per_step=65536, shares=replace(_OURS, activations=1.0)),
    Row(name="W3", shape=_LLAMA_3B, tokens_per_step=4096, micro_sequences=2),
    Row(
        name="W4",
        shape=_LLAMA_8B,
        tokens_per_step=65536,
        shares=replace(_OURS, weights=0.93, gradients=1.0, activations=1.0),  # embedding and head stay
    ),
    Row(
        name="W5",
        shape=_LLAMA_3B,
        tokens_per_step=65536,
        dram_gb=24.0,
        shares=replace(_OURS, activations=0.75, nvme=0.45),
    ),
    Row(
        name="W6",
        shape=_LLAMA_1B,
        tokens_per_step=131072,
        seq_len=131072,
        micro_sequences=1,
        shares=replace(_OURS, activations=1.0, weights=0.8, gradients=1.0),
    ),
)


def row_named(name: str) -> Row:
    """Raises SystemExit for an unknown one."""
    for row in ROWS:
        if row.name == name:
            return row
    raise SystemExit(f"rows: {', '.join(row.name for row in ROWS)}")
