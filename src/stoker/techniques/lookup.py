"""A technique by its name, out of a plain tuple; a name that a job may pin but nobody built yet is bad input."""

from typing import Protocol, TypeVar

from stoker.core.errors import PlanningError
from stoker.core.i18n import _


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def find_technique(kind: str, choices: tuple[T, ...], name: str) -> T:
    """The member of `choices` called `name`. Raises PlanningError ST380 naming what there is."""
    for technique in choices:
        if technique.name == name:
            return technique
    raise PlanningError(
        "ST380",
        _("{kind} {name} is not built yet").format(kind=kind, name=name),
        place=kind,
        fix=_("one of: {names}").format(names=", ".join(technique.name for technique in choices)),
    )
