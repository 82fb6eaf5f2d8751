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


def slack_bytes(scenario: Scenario, held: float, dynamic: Dynamic) -> float:
    """Reserved minus allocated at the peak; `held`: state and gradients."""
    shares = scenario.efficiency.constants
    coming = dynamic.highest
    if scenario.cluster.device.kind == "cpu":
        return shares["slack_cpu"] * coming
    if scenario.stack.expandable_segments:
        return shares["slack_expandable"] * (held + coming)
    grown = growth(scenario) * coming
    return shares["slack_held"] * held + shares["slack_crossing"] * dynamic.lower_pool + grown


def growth(scenario: Scenario) -> float:
    """Segments of other sizes than the fullest batch's, as a share of what comes and goes.

    Buckets begin with the longest batch, so that shorter ones fit into its memory: the share grows with how uneven
    lengths are. In the order of the data each new longest batch asks for new segments beside those of all before it.
    """
    shares, uneven = scenario.efficiency.constants, log(unevenness(scenario))
    if scenario.config.packing == "none" and scenario.stack.pads_by_batch:
        return shares["slack_unordered"] * min(uneven / _ENOUGH, 1.0)
    return shares["slack_uneven"] * uneven


def unevenness(scenario: Scenario) -> float:
    """Longest over mean length of what batches are padded to; 1 where all have one shape (our `packing: none`)."""
    lengths = scenario.lengths
    one_shape = scenario.config.packing == "none" and scenario.stack.name == OURS.name
    if scenario.is_image or one_shape or lengths.mean <= 0.0:
        return 1.0
    return max(lengths.maximum / lengths.mean, 1.0)
