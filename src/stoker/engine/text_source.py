"""Tokenised samples as padded tensors: int64 ids, an attention mask, and the targets of the task."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from stoker.core.job import Job
from stoker.data.encoded import EncodedSplit
from stoker.engine.microbatch import IGNORE, MicroBatch
from stoker.engine.objective import Objective
from stoker.techniques.protocols import PackingTechnique


class TextSource:
    """An `EncodedSplit` that collates. `multiple`: padded lengths are rounded up to it (8 suits matrix units)."""

    def __init__(
        self,
        split: EncodedSplit,
        job: Job,
        objective: Objective,
        packing: PackingTechnique,
        *,
        pad_id: int,
        multiple: int,
        with_types: bool,
    ) -> None:
        self.split, self.objective = split, objective
        self.lengths: Sequence[int] = split.lengths.tolist()
        self._packing, self._pad_id, self._multiple = packing, pad_id, multiple
        self._longest = max(self.lengths, default=0)
        self._causal = job.task == "causal_lm"
        self._target_dtype = np.float32 if job.problem == "multi_label" else np.int64
        self._with_types = with_types and split.has_type_ids

    def __len__(self) -> int:
        return self.split.num_samples

    def collate(self, samples: Sequence[int]) -> MicroBatch:
        """Ids [B, S] padded to the packing's length, and targets."""
        lengths = [self.lengths[i] for i in samples]
        width = self._packing.padded_length(lengths, self._longest)
        width = -(-width // self._multiple) * self._multiple
        ids = np.full((len(samples), width), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(samples), width), dtype=np.int64)
        for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
            ids[row, :length] = self.split.token_ids(sample)
            mask[row, :length] = 1
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if self._with_types:
            types = np.zeros((len(samples), width), dtype=np.int64)
            for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
                types[row, :length] = np.asarray(self.split.type_ids(sample))
            inputs["token_type_ids"] = torch.from_numpy(types)
        targets = torch.from_numpy(self._next_tokens(samples, ids) if self._causal else self._labels(samples))
        return MicroBatch(
            inputs=inputs,
            targets=targets,
            samples=len(samples),
            tokens=sum(lengths),
            padded_tokens=ids.size,
            weight=self.objective.weight(targets),
        )

    def _labels(self, samples: Sequence[int]) -> Any:
        return np.asarray([self.split.target(i) for i in samples], dtype=self._target_dtype)

    def _next_tokens(self, samples: Sequence[int], ids: Any) -> Any:
        """Position t's target is token t + 1 where the loss counts that token, else IGNORE."""
        targets = np.full(ids.shape, IGNORE, dtype=np.int64)
        for row, sample in enumerate(samples):
            counted = np.frombuffer(bytes(self.split.loss_mask(sample)), dtype=np.uint8)
            n = len(counted)
            targets[row, : n - 1] = np.where(counted[1:] > 0, ids[row, 1:n], IGNORE)
        return targets
