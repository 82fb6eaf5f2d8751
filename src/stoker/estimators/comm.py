"""Seconds of communication of one optimizer step, per rank: collectives by the alpha-beta model over the links there.

A ring over n ranks takes call + rounds x alpha + bytes x factor / beta, with factor 2 (n-1)/n for an all-reduce and
(n-1)/n for an all-gather or a reduce-scatter of the full tensor (docs/math.md, section 3). Rounds that cross nodes
pay the network's alpha, the others the link's inside. What overlaps hides under compute as far as that lasts.
"""

from dataclasses import dataclass
from math import ceil

from stoker.catalogue.links import LinkRate, link_rates, reference_nic
from stoker.core.hardware import Cluster
from stoker.estimators.scenario import Scenario
from stoker.techniques.parallel import parallel
from stoker.techniques.parallel.pipeline import bubble_frac
from stoker.techniques.protocols import Collective

_HIDES_FRAC = 0.9  # of compute: kernels of a collective take some multiprocessors, and the first bytes come late
_CALLS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "ring_pass": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommTime:
    """Of one optimizer step: `exposed_s` waits for bytes, `bubble_s` idles in a pipeline's ramp."""

    exposed_s: float
    bubble_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What a group of ranks crosses: `beta` bytes/s of its slowest link; seconds a round inside and between nodes.

    `nodes`: that the group spans. `inside_beta`: of the links inside a node; `per_rank_network`: a rank's share of the
    way out of its node, when all its neighbours send at once.
    """

    beta: float
    inside: LinkRate
    inside_beta: float
    nodes: int
    per_rank_network: float


def comm_time(scenario: Scenario, tokens: float, forward_s: float, backward_s: float) -> CommTime:
    """Exposed seconds of one optimizer step. `forward_s`, `backward_s`: compute of the whole step to hide under.

    `tokens`: computed tokens of a rank's mean micro-batch.

    A pipeline's ramp repeats (p - 1) / v times what a micro-batch does: its compute and what it sends on its way.
    """
    config = scenario.config
    if config.parallel.world_size == 1:
        return CommTime(exposed_s=0.0)
    exposed = hidden = in_micro_batches = 0.0
    for collective in parallel(config.parallel).collectives(scenario.ledger, config, tokens):
        seconds = collective_time(collective, scenario.cluster) * _dispatch_factor(scenario, collective)
        hidden += seconds * collective.overlapped_frac
        exposed += seconds * (1.0 - collective.overlapped_frac)
        if collective.in_micro_batch:
            in_micro_batches += seconds * (1.0 - collective.overlapped_frac)
    gathers = config.parallel.shard_ranks > 1 and config.parallel.zero_stage == 3
    window = backward_s + (forward_s if gathers or config.parallel.cp > 1 else 0.0)
    idle = bubble_frac(config.parallel, config.gradient_accumulation_steps)
    return CommTime(
        exposed_s=exposed + max(hidden - _HIDES_FRAC * window, 0.0),
        bubble_s=idle * (forward_s + backward_s + in_micro_batches),
    )


def _dispatch_factor(scenario: Scenario, collective: Collective) -> float:
    """Exchanges between experts take longer than their bytes (uneven, small), except by a kernel made for them."""
    if collective.operation != "all_to_all":
        return 1.0
    inside = path_of(scenario.cluster, collective.ranks, collective.stride).nodes == 1
    constants = scenario.efficiency.constants
    return constants["dispatch_fused" if inside and scenario.stack.fused_dispatch else "dispatch"]


def collective_time(collective: Collective, cluster: Cluster) -> float:
    """Seconds of all `count` calls of a collective over `collective.ranks` ranks of `cluster`."""
    ranks = collective.ranks
    if ranks <= 1 or collective.num_bytes <= 0:
        return 0.0
    path = path_of(cluster, ranks, collective.stride)
    call_s = path.inside.call_s
    if collective.operation == "send":
        seconds = call_s + path.inside.round_s + collective.num_bytes / path.beta
    elif collective.operation == "broadcast":  # in chunks, all links at once
        seconds = call_s + (ranks - 1) * path.inside.round_s + collective.num_bytes / path.beta
    elif collective.operation == "all_to_all":
        seconds = call_s + _rounds_s(path, ranks, 1.0) + _all_to_all_s(path, ranks, collective.num_bytes)
    elif collective.operation == "ring_pass":  # the full part of each rank, n - 1 times on
        seconds = (ranks - 1) * (call_s + path.inside.round_s + collective.num_bytes / path.beta)
    else:
        times = _CALLS[collective.operation]
        moved = collective.num_bytes * times * (ranks - 1) / ranks
        seconds = call_s + _rounds_s(path, ranks, times) + moved / path.beta
    return collective.count * seconds


def link(cluster: Cluster, ranks: int, stride: int = 1) -> tuple[float, float]:
    """(seconds a round inside a node, bytes a second) of the slowest link that a ring over `ranks` ranks crosses."""
    path = path_of(cluster, ranks, stride)
    return path.inside.round_s, path.beta


def path_of(cluster: Cluster, ranks: int, stride: int = 1) -> Path:
    """What a group of `ranks` ranks, `stride` apart in rank order, crosses on `cluster`.

    Ranks fill nodes in order. All groups of a kind work at once, so the `stride` groups of a node share its way out.
    """
    device = cluster.device
    per_node = cluster.gpus_per_node
    rack = device.link_max_gpus if device.link_max_gpus and device.link_max_gpus > per_node else 0
    is_one_link = rack > 8 and ranks * stride <= rack
    members = ranks if is_one_link or ranks * stride <= per_node else max(1, per_node // stride)
    inside, inside_beta = _inside(cluster, members * stride)
    nic = cluster.inter_node_bytes_per_s or reference_nic(device.interconnect).bytes_per_s * per_node
    network = nic * link_rates()["network"].effective_frac
    nodes = ceil(ranks / members)
    if nodes == 1:
        beta = inside_beta
    else:
        out = network * members / per_node  # of this group, when all groups of the node send at once
        beta = min(out, inside_beta) if members > 1 else out
    return Path(
        beta=beta, inside=inside, inside_beta=inside_beta, nodes=nodes, per_rank_network=network / max(per_node, 1)
    )


def _inside(cluster: Cluster, reach: int) -> tuple[LinkRate, float]:
    """(rate, bytes/s) of the link that joins `reach` neighbouring GPUs of a node: NVLink, PCIe or host memory."""
    device, rates = cluster.device, link_rates()
    joined = device.link_max_gpus is None or reach <= device.link_max_gpus
    if joined and device.link_bytes_per_s > 1.5 * device.pcie_bytes_per_s:
        return rates["nvlink"], device.link_bytes_per_s * rates["nvlink"].effective_frac
    rate = rates["pcie" if device.peer_to_peer else "bounce"]
    return rate, max(device.pcie_bytes_per_s, 1.0) * rate.effective_frac


def _rounds_s(path: Path, ranks: int, times: float) -> float:
    between = path.nodes - 1
    inside = ranks - 1 - between
    return times * (inside * path.inside.round_s + between * link_rates()["network"].round_s)


def _all_to_all_s(path: Path, ranks: int, num_bytes: float) -> float:
    """A rank keeps 1/n, sends what stays in its node by the link inside and the rest by its share of the network."""
    if path.nodes == 1:
        return num_bytes * (ranks - 1) / ranks / path.inside_beta
    members = ranks / path.nodes
    inside_s = num_bytes * (members - 1.0) / ranks / path.inside_beta
    outside_s = num_bytes * (ranks - members) / ranks / path.per_rank_network
    return max(inside_s, outside_s)
