"""quick_profile: what planning needs to know about the data, well under a second, and where it comes from.

In this order: the profile that an earlier `check` or `run` measured on these very files; a sample of at most 2,000
rows through the tokenizer; the sizes that the job declares. Token lengths are before the cut at seq_len.
"""

from stoker.core.errors import DataError
from stoker.core.estimate import Source
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel
from stoker.core.profile import DataProfile, lengths_constant, lengths_declared
from stoker.data.seq_limit import resolve_seq_len


def quick_profile(job: Job, model: ResolvedModel) -> tuple[DataProfile, list[str]]:
    """(profile, one line on each thing that is not measured). Raises DataError where the data is wrong or absent, and
    where tokenizer or train.seq_len do not go with the model: what `run` would refuse is not planned."""
    if job.task != "image_classification":
        resolve_seq_len(job, model.config)
    if job.data.train is None:
        return _declared(job, model)
    return _found(job, model)


def _found(job: Job, model: ResolvedModel) -> tuple[DataProfile, list[str]]:
    """The profile of the files that the job names; of its declared sizes where they are not here."""
    from stoker.data.files import real_path, resolve_path
    from stoker.data.hub import local_source

    try:
        job = local_source(job)
        path = resolve_path(job, job.data.train or "")
        real_path(path)
    except DataError as error:
        if job.data.num_samples is None or error.code == "ST102":  # what is there and is no data is no absence
            raise
        profile, notes = _declared(job, model)
        return profile, [*notes, _("{name} is not here: planned from the declared sizes").format(name=job.data.train)]
    # the readers load only where there is something to read
    from stoker.data.measured_profile import profile_of_images, profile_of_sample, sample_note
    from stoker.data.profile_store import recall_profile, remember_profile

    kept = recall_profile(job, model)
    if kept is not None:
        profile, sampled = kept
        return profile, [sample_note(profile)] if sampled and job.task != "image_classification" else []
    if job.task == "image_classification":
        profile, notes = profile_of_images(job, path)
    else:
        profile, notes = profile_of_sample(job, model, path)
    remember_profile(job, model, profile, sampled=True)
    return profile, notes


def _declared(job: Job, model: ResolvedModel) -> tuple[DataProfile, list[str]]:
    data = job.data
    notes = []
    if job.task == "image_classification":
        lengths = lengths_constant(1)
    else:
        mean = data.tokens_mean or 1.0
        limit = float(max(resolve_seq_len(job, model.config), mean))
        maximum = data.tokens_max or max(limit, data.tokens_p99 or 0.0)
        p99 = data.tokens_p99 or min(3.5 * mean, maximum)
        lengths = lengths_declared(mean, p99, maximum)
        missing = [n for n in ("tokens_p99", "tokens_max") if getattr(data, n) is None]
        if missing:
            notes.append(
                _("{names} not declared: assumed {p99:.0f} and {maximum:.0f} tokens").format(
                    names=", ".join(missing), p99=p99, maximum=maximum
                )
            )
    profile = DataProfile(
        num_samples=data.num_samples or 1,
        lengths=lengths,
        num_eval_samples=data.num_eval_samples or round((data.num_samples or 0) * (data.eval_frac or 0.0)),
        num_labels=job.num_declared_labels,
        source=Source.ASSUMED,
    )
    return profile, notes
