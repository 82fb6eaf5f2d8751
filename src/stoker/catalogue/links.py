"""How fast bytes move between GPUs, to the host and between nodes: bytes/s, one direction, peak, from data/links.csv.

Vendors print both directions together; the table halves that once, so that no caller has to. What collectives reach
of a peak, and how long a round takes, is in data/link_rates.csv by kind of link.
"""

import functools
from dataclasses import dataclass

from stoker.catalogue.tables import number, read_rows, whole
from stoker.core.estimate import Source
from stoker.core.units import GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """`bytes_per_s`: one direction; per GPU for `gpu`, `pcie`, `bounce`, `host` and `node_nic`, per node for `fabric`.

    `max_gpus`: how many GPUs it joins at that speed; None where it has no such limit.
    """

    name: str
    kind: str
    bytes_per_s: float
    max_gpus: int | None
    note: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """What ring collectives reach over one kind of link: a share of its peak, and seconds a round and a call."""

    kind: str
    effective_frac: float
    round_s: float
    call_s: float
    source: Source


@functools.cache
def link_rates() -> dict[str, LinkRate]:
    """By kind: nvlink, pcie, bounce (no peer to peer: through host memory), network."""
    return {
        row["kind"]: LinkRate(
            kind=row["kind"],
            effective_frac=float(row["effective_frac"]),
            round_s=float(row["round_us"]) * 1e-6,
            call_s=float(row["call_us"]) * 1e-6,
            source=Source(row["source"]),
        )
        for row in read_rows("link_rates.csv")
    }


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


@functools.cache
def reference_nic(interconnect: str) -> Link:
    """The network of the vendor's own machine with GPUs on `interconnect`, per GPU; where no fabric is known."""
    wanted = f"reference/{interconnect}"
    nics = [link for link in all_links().values() if link.kind == "node_nic" and wanted.startswith(link.name)]
    return max(nics, key=lambda link: len(link.name))
