"""Makes src/stoker/catalogue/data/offers.csv from the surveyed prices: which rows, under whose name, from which source.

`python tools/curate_offers.py [SURVEY]` (default ../shared/data/prices/offers.csv). Deterministic: the same inputs give
the same bytes. tools/offers_selection.csv says which surveyed instances are shipped and which product each holds (the
survey's own names leave the form factor open); tools/offers_by_hand.csv holds prices read from provider pages. Of two
rows for one instance, region and price kind the newer is shipped.
"""

import csv
import fnmatch
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
OUTPUT = TOOLS.parent / "src" / "stoker" / "catalogue" / "data" / "offers.csv"
SURVEY = TOOLS.parent.parent / "shared" / "data" / "prices" / "offers.csv"
COLUMNS = [
    "provider",
    "instance",
    "region",
    "gpu",
    "gpu_count",
    "price_kind",
    "usd_per_hour",
    "observed_at",
    "vcpu",
    "dram_gib",
    "disk_gb",
    "claimed_gpu_gb",
    "source",
    "licence",
]
SMALLEST_DISK_GB = 100  # below: the survey read a number of TB or of drives (p5.48xlarge: 24)
Row = dict[str, str]


def rows_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def plain(value: Decimal) -> str:
    return format(value.normalize(), "f")


def times(text: str, factor: int) -> str:
    return plain(Decimal(text) * factor) if text else ""


def scaled(row: Row, count: int, per: int) -> Row:
    """`row`, priced for `per` GPUs, as an instance of `count` GPUs."""
    if count == per:
        return row
    return row | {
        "instance": f"{row['instance']} x{count}",
        "gpu_count": str(count),
        "usd_per_hour": times(row["usd_per_hour"], count),
        "vcpu": times(row["vcpu"], count),
        "dram_gib": times(row["dram_gib"], count),
        "disk_gb": times(row["disk_gb"], count),
        "source": f"{row['source']}; rate of one GPU x {count}",
    }


def surveyed(survey: list[Row], wanted: Row) -> Iterator[Row]:
    """The offers of the survey that one line of the selection asks for, on-demand and spot apart."""
    regions = wanted["region"].split("|")
    for row in survey:
        if row["provider"] != wanted["provider"] or row["region"] not in regions:
            continue
        if not fnmatch.fnmatchcase(row["instance"], wanted["instance"]) or int(row["gpu_count"]) > 8:
            continue
        disk = row["disk_gb"] if row["disk_gb"] and float(row["disk_gb"]) >= SMALLEST_DISK_GB else ""
        listed = "marketplace" if row["provider"] == "vastai" else "on_demand"
        for kind, price in ((listed, row["price_usd_h"]), ("spot", row["spot_price_usd_h"])):
            if not price:
                continue
            offer = {
                "provider": row["provider"],
                "instance": row["instance"],
                "region": row["region"],
                "gpu": wanted["gpu"],
                "gpu_count": row["gpu_count"],
                "price_kind": kind,
                "usd_per_hour": plain(Decimal(price)),
                "observed_at": row["snapshot_date"],
                "vcpu": row["vcpu"],
                "dram_gib": row["mem_gb"],
                "disk_gb": disk,
                "claimed_gpu_gb": row["gpu_mem_gb"],
                "source": row["source"].partition(" (")[0],
                "licence": row["licence"],
            }
            for count in wanted["counts"].split(";"):
                yield scaled(offer, int(count or row["gpu_count"]), int(row["gpu_count"]))


def by_hand(row: Row) -> Iterator[Row]:
    counts = [int(count) for count in row["counts"].split(";")]
    whole = len(counts) == 1 and counts[0] > 1 and row["provider"] in ("lambda", "coreweave", "aws")
    for count in counts:
        one = row | {"gpu_count": "1", "usd_per_hour": row["usd_per_gpu_hour"]}
        if whole:  # sizes and name are the instance's own
            yield one | {"gpu_count": str(count), "usd_per_hour": times(row["usd_per_gpu_hour"], count)}
        else:
            yield scaled(one, count, 1)


def curate(survey: list[Row]) -> list[Row]:
    found: dict[tuple[str, ...], Row] = {}
    offers = [o for wanted in rows_of(TOOLS / "offers_selection.csv") for o in surveyed(survey, wanted)]
    offers += [o for row in rows_of(TOOLS / "offers_by_hand.csv") for o in by_hand(row)]
    for offer in offers:
        key = tuple(offer[name] for name in ("provider", "instance", "region", "price_kind"))
        if key not in found or found[key]["observed_at"] < offer["observed_at"]:
            found[key] = offer
    return [found[key] for key in sorted(found)]


def main() -> None:
    offers = curate(rows_of(Path(sys.argv[1]) if len(sys.argv) > 1 else SURVEY))
    with OUTPUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(offers)
    print(f"{len(offers)} offers -> {OUTPUT}")


if __name__ == "__main__":
    main()
