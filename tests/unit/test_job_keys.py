"""No key of the job file is decoration: each is read by planning or by the run, and each choice has its technique.

What this version does not offer is refused by name (ST323), never passed over.
"""

import ast
import dataclasses
import typing
from pathlib import Path

import pytest

from planning import TINY, lm_job, plan_of
from stoker.core.job import HardwareSpec, Job, NvmeSpec, RunPins, TextFields, TrainSpec, TuneSpec
from stoker.techniques.adapter import ADAPTERS
from stoker.techniques.attention import ATTENTIONS
from stoker.techniques.capture import CAPTURES
from stoker.techniques.loss import LOSSES
from stoker.techniques.loss.foreign import ForeignLoss
from stoker.techniques.optimizer import OPTIMIZERS
from stoker.techniques.packing import PACKINGS
from stoker.techniques.placement import PLACEMENTS
from stoker.techniques.precision import PRECISIONS
from stoker.techniques.recompute import RECOMPUTES

SOURCE = Path(__file__).resolve().parents[2] / "src" / "stoker"
SAYS_WHAT_A_KEY_IS = {"job.py", "job_checks.py", "job_schema.py", "starter.py"}
NOT_OFFERED = {"packed", "compile"}  # compile has its technique, but no run has measured it


def sections(owner: type) -> set[type]:
    """`owner` and every dataclass that its keys may hold."""
    found = {owner}
    for hint in typing.get_type_hints(owner).values():
        for part in (hint, *typing.get_args(hint)):
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                found |= sections(part)
    return found


def names_read() -> set[str]:
    """Attributes that any module reads, those apart that define, check and describe keys."""
    read: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        if file.name in SAYS_WHAT_A_KEY_IS and file.parent.name == "core":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
    return read


def test_every_key_is_read_somewhere() -> None:
    every = sections(Job)
    assert {TextFields, NvmeSpec, RunPins, HardwareSpec, TuneSpec} <= every
    read = names_read()
    unread = {
        f"{section.__name__}.{field.name}"
        for section in every
        for field in dataclasses.fields(section)
        if not field.metadata.get("internal") and field.name not in read
    }
    assert unread == set()


@pytest.mark.parametrize(
    ("section", "key", "techniques"),
    [
        (RunPins, "precision", PRECISIONS),
        (RunPins, "recompute", RECOMPUTES),
        (RunPins, "placement", PLACEMENTS),
        (RunPins, "loss", tuple(one for one in LOSSES if not isinstance(one, ForeignLoss))),
        (RunPins, "attention", ATTENTIONS),
        (RunPins, "packing", PACKINGS),
        (RunPins, "capture", CAPTURES),
        (TuneSpec, "method", ADAPTERS),
        (TrainSpec, "optimizer", OPTIMIZERS),
    ],
)
def test_every_choice_has_its_technique_or_is_refused(
    section: type, key: str, techniques: tuple[typing.Any, ...]
) -> None:
    choices = set(typing.get_args(typing.get_type_hints(section)[key])) - {"auto"}
    built = {technique.name for technique in techniques}
    assert len(built) == len(techniques)
    assert built - NOT_OFFERED == choices - NOT_OFFERED
    for name in choices & NOT_OFFERED:
        pins = RunPins(**{key: name}) if section is RunPins else RunPins()
        plan = plan_of(lm_job(gpus=["H100-SXM5-80GB"], num_gpus=1, run=pins), TINY)
        assert plan.candidates == () and [r.code for r in plan.rejected] == ["ST323"]
        assert name in plan.rejected[0].reason
