"""The constants that our pooled head starts from: centre and spread of the untrained encoder's sentence vectors over
the first training samples, and the labels' frequencies. Pure functions of job, weights and data.
"""

import math
from collections.abc import Iterator

import torch

from stoker.core.job import Job
from stoker.data.prepared import PreparedData
from stoker.engine.pooled import PooledClassifier
from stoker.engine.session import Session
from stoker.engine.tiers.session import TieredUpdater

_SAMPLES = 256


def fit_head(session: Session, data: PreparedData) -> None:
    """Set the pooled head's constants, where there is such a head. The encoder is only read."""
    network = session.built.network
    if not isinstance(network, PooledClassifier):
        return
    with session.whole_model():
        session.model.eval()
        with torch.no_grad(), session.autocast():
            vectors = torch.cat(list(_vectors(session, network)))
        bias = start_bias(session.job, data)
        network.fit_constants(vectors, None if bias is None else bias.to(session.device))
        if isinstance(session.updater, TieredUpdater):
            session.updater.adopt_weights()
            return
    refresh = getattr(session.updater.optimizer, "refresh_masters", None)
    if refresh is not None:
        refresh()


def _vectors(session: Session, network: PooledClassifier) -> Iterator[torch.Tensor]:
    seen = 0
    for step in range(session.steps_per_epoch):
        for group in session.steps.samples(step)[1]:
            micro = session.steps.source.collate(group).to(session.device)
            output = network.encoder(**micro.inputs)
            yield network.sentence_vectors(output.last_hidden_state, micro.inputs["attention_mask"])
            seen += len(group)
        if seen >= _SAMPLES:
            return


def start_bias(job: Job, data: PreparedData) -> torch.Tensor | None:
    """Log-odds of each label (multi_label), log-frequency of each class; None where classes are weighed alike."""
    if job.train.class_weights == "balanced" or data.labels is None:
        return None
    rows = data.profile.num_samples
    shares = [(data.profile.label_counts.get(name, 0) + 1) / (rows + 2) for name in data.labels.names]
    if job.problem == "multi_label":
        return torch.tensor([math.log(share / (1.0 - share)) for share in shares])
    return torch.tensor([math.log(share) for share in shares])
