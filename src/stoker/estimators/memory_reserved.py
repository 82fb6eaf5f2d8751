"""Reserved beyond allocated: what torch's caching allocator holds and cannot use at the peak, in bytes.

The allocator asks the driver for segments and reuses a freed one only for a block that fits. The loss needs a few huge
blocks, a block of layers many middling ones; the sizes differ, so the lower of the two high points keeps most of its
segments while the higher one runs (docs/math.md, section 1). Batches of ever new lengths add segments of ever new
sizes. Programs that set expandable segments (`Stack.expandable_segments`) lose neither.
"""

from math import log

from stoker.core.stack import OURS
from stoker.estimators.memory_phases import Dynamic
from stoker.estimators.scenario import Scenario

_ENOUGH = 0.2  # logarithm of longest over mean length from which nearly every batch has a length of its own


def slack_bytes(scenario: Scenario, held: float, dynamic: Dynamic, *, room: float) -> float:
    """Reserved minus allocated at the peak; `held`: state and gradients.

    `room`: of the device beyond what is allocated and the context. Growth stops there: before it fails, the allocator
    gives back what it has cached.
    """
    shares = scenario.efficiency.constants
    coming = dynamic.highest
    if scenario.cluster.device.kind == "cpu":
        return shares["slack_cpu"] * coming
    if scenario.stack.expandable_segments:
        return shares["slack_expandable"] * (held + coming)
    fixed = shares["slack_held"] * held + shares["slack_crossing"] * dynamic.lower_pool
    return fixed + min(growth(scenario) * coming, max(room - fixed, 0.0))


def growth(scenario: Scenario) -> float:
    """Segments of other sizes than the fullest batch's, as a share of what comes and goes.

    Buckets begin with the longest batch, so that shorter ones fit into its memory: the share grows with how uneven
    lengths are. In the order of the data each batch that is nearly as long as the longest asks for segments of its own,
    and the nearer the mean is to the longest, the more of those there are.
    """
    shares = scenario.efficiency.constants
    if is_unordered(scenario):
        return shares["slack_unordered"] * unordered_share(scenario) / unevenness(scenario)
    return shares["slack_uneven"] * log(unevenness(scenario))


def is_unordered(scenario: Scenario) -> bool:
    """Whether batches come in the order of the data, each padded to its own longest sample."""
    return scenario.config.packing == "none" and scenario.stack.pads_by_batch


def unordered_share(scenario: Scenario) -> float:
    """How much of the allocator meets sizes that it has not seen: all, unless lengths are nearly even."""
    return min(log(unevenness(scenario)) / _ENOUGH, 1.0)


def unevenness(scenario: Scenario) -> float:
    """Longest over mean length of what batches are padded to; 1 where all have one shape (our `packing: none`)."""
    lengths = scenario.lengths
    one_shape = scenario.config.packing == "none" and scenario.stack.name == OURS.name
    if scenario.is_image or one_shape or lengths.mean <= 0.0:
        return 1.0
    return max(lengths.maximum / lengths.mean, scenario.stack.usual_unevenness)
