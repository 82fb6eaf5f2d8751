"""Seconds of communication of one optimizer step, per rank: ring collectives by the alpha-beta model.

t = alpha x steps + bytes x factor / beta, with factor 2(n-1)/n for an all-reduce and (n-1)/n for an all-gather or a
reduce-scatter of the full tensor (docs/math.md, section 3). What overlaps hides under compute as far as that lasts.
"""

from stoker.core.hardware import Cluster
from stoker.estimators.scenario import Scenario
from stoker.techniques.parallel import parallel
from stoker.techniques.protocols import Collective

_NVLINK_ALPHA_S = 6e-6
_PCIE_ALPHA_S = 18e-6
_NETWORK_ALPHA_S = 30e-6
_NVLINK_FRAC = 0.65  # Calculon's validated share of NVLink (isaev et al., SC23)
_PCIE_FRAC = 0.45  # ring over host bridges, both directions at once; assumed
_NETWORK_FRAC = 0.8


def comm_time(scenario: Scenario, forward_s: float, backward_s: float) -> float:
    """Exposed seconds of one optimizer step. `forward_s`, `backward_s`: compute of the whole step to hide under."""
    config = scenario.config
    if config.parallel.world_size == 1:
        return 0.0
    exposed = hidden = 0.0
    for collective in parallel(config.parallel).collectives(scenario.ledger, config):
        seconds = collective_time(collective, scenario.cluster)
        hidden += seconds * collective.overlapped_frac
        exposed += seconds * (1.0 - collective.overlapped_frac)
    window = backward_s + (forward_s if config.parallel.dp_shard > 1 else 0.0)
    return exposed + max(hidden - 0.9 * window, 0.0)


def collective_time(collective: Collective, cluster: Cluster) -> float:
    """Seconds of all `count` calls of a ring collective over `collective.ranks` ranks of `cluster`."""
    ranks = collective.ranks
    if ranks <= 1:
        return 0.0
    alpha, beta = link(cluster, ranks)
    rounds, factor = ranks - 1, (ranks - 1) / ranks
    if collective.operation == "all_reduce":
        rounds, factor = 2 * rounds, 2.0 * factor
    return collective.count * (alpha * rounds + collective.num_bytes * factor / beta)


def link(cluster: Cluster, ranks: int) -> tuple[float, float]:
    """(seconds a round, bytes a second) of the slowest link that a ring over `ranks` ranks crosses."""
    device = cluster.device
    in_one_node = min(ranks, cluster.gpus_per_node)  # beyond the node the ring goes by the network, not by PCIe
    joined = device.link_max_gpus is None or in_one_node <= device.link_max_gpus
    on_nvlink = joined and device.link_bytes_per_s > 1.5 * device.pcie_bytes_per_s
    alpha = _NVLINK_ALPHA_S if on_nvlink else _PCIE_ALPHA_S
    beta = device.link_bytes_per_s * _NVLINK_FRAC if on_nvlink else device.pcie_bytes_per_s * _PCIE_FRAC
    if ranks > cluster.gpus_per_node:
        return max(alpha, _NETWORK_ALPHA_S), min(beta, cluster.inter_node_bytes_per_s * _NETWORK_FRAC)
    return alpha, beta
