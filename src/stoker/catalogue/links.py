"""How fast bytes move between GPUs, to the host and between nodes: bytes/s, one direction, peak, from data/links.csv.

Vendors print both directions together; the table halves that once, so that no caller has to.
"""

import functools
from dataclasses import dataclass

from stoker.catalogue.tables import number, read_rows, whole
from stoker.core.units import GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """`bytes_per_s`: one direction; per GPU for `gpu`, `pcie` and `host`, per node for `fabric`.

    `max_gpus`: how many GPUs it joins at that speed; None where it has no such limit.
    """

    name: str
    kind: str
    bytes_per_s: float
    max_gpus: int | None
    note: str
    source: str


@functools.cache
def all_links() -> dict[str, Link]:
    """Every link by name."""
    return {
        row["name"]: Link(
            name=row["name"],
            kind=row["kind"],
            bytes_per_s=(number(row["one_direction_gb_per_s"]) or 0.0) * GB,
            max_gpus=whole(row["max_gpus"]),
            note=row["note"],
            source=row["source"],
        )
        for row in read_rows("links.csv")
    }


def node_fabric(provider: str, instance: str) -> Link | None:
    """The network between nodes of this instance type, or None where nothing could be cited."""
    wanted = f"{provider}/{instance}"
    return next((link for name, link in all_links().items() if link.kind == "fabric" and wanted.startswith(name)), None)
