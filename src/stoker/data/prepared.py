"""Data ready for training: splits, labels, profile, and the report of what was found."""

from dataclasses import dataclass

from stoker.core.profile import DataProfile
from stoker.data.encoded import EncodedSplit
from stoker.data.images import ImageSplit
from stoker.data.labels import LabelSpace
from stoker.data.notices import Notice
from stoker.data.report import DataReport
from stoker.data.tokenizer import TextTokenizer

Split = EncodedSplit | ImageSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedData:
    """`train`, and `eval` and `test` where the job has them. `labels`: None for causal_lm. `tokenizer`, `seq_len`:
    None for images. `reused`: the tokens came from the cache."""

    train: Split
    eval: Split | None
    test: Split | None
    labels: LabelSpace | None
    profile: DataProfile
    report: DataReport
    notices: tuple[Notice, ...] = ()
    tokenizer: TextTokenizer | None = None
    seq_len: int | None = None
    reused: bool = False

    @property
    def splits(self) -> dict[str, Split]:
        """The splits there are, by name."""
        named = {"train": self.train, "eval": self.eval, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}
