"""Rows of an offers table for the tests of offers."""

from stoker.core.offer import OfferIssue, OffersSnapshot


def row(**cells: object) -> dict[str, str]:
    """One row of an offers table, an L4 at 1 USD unless said otherwise."""
    base = {
        "provider": "aws",
        "instance": "i",
        "region": "us-east-1",
        "gpu": "L4",
        "gpu_count": "1",
        "price_kind": "on_demand",
        "usd_per_hour": "1.0",
        "observed_at": "2026-11-20",
        "source": "test",
    }
    return base | {key: str(value) for key, value in cells.items()}


def peers(gpu: str, usd_per_gpu_hour: float, **cells: object) -> list[dict[str, str]]:
    """Honest offers of three hyperscalers at 0.9, 1.0 and 1.2 times a price."""
    names = (("aws", 0.9), ("gcp", 1.0), ("azure", 1.2))
    return [
        row(provider=p, instance=f"{p}-peer", gpu=gpu, usd_per_hour=usd_per_gpu_hour * f, **cells) for p, f in names
    ]


def issues_of(snapshot: OffersSnapshot) -> dict[str, OfferIssue]:
    return {issue.kind: issue for issue in snapshot.issues}
