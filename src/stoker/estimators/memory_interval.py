"""How far a memory estimate may be off: independent relative spreads of its parts, each with its own reason.

State is counted, so it is almost certain; what comes and goes hangs on implementation; slack on how blocks fragment;
the context on driver and libraries. Spreads are fitted (tools/fit_memory.py) and stand in efficiency_constants.csv.
"""

from collections.abc import Mapping
from math import log, sqrt

from stoker.core.efficiency import FrameworkBytes
from stoker.core.estimate import Source
from stoker.core.units import MIB
from stoker.estimators.memory_reserved import is_unordered, unevenness, unordered_share
from stoker.estimators.scenario import Scenario

_Z90 = 1.6449  # 5 % and 95 % points of a normal, in standard deviations


def memory_interval(scenario: Scenario, terms: Mapping[str, int], outside: FrameworkBytes) -> tuple[float, float]:
    """5 % and 95 % points of the expected bytes that `terms` sum to."""
    spread = scenario.efficiency.constants
    expected = sum(terms.values())
    if scenario.correction:
        half = spread["spread_calibrated"] * expected
        return expected - half, expected + half
    held = terms["params"] + terms["grads"] + terms["optimizer_states"]
    coming = terms["activations"] + terms["logits"] + terms["temp_buffers"]
    slack = terms["fragmentation"]
    if is_unordered(scenario):
        uneven = spread["spread_unordered"] * unordered_share(scenario) * coming
    else:
        uneven = spread["spread_uneven"] * log(unevenness(scenario)) * coming
    context = 0.0 if outside.source is Source.MEASURED else spread["spread_context"] * terms["framework"]
    guess = guess_held = 0.0
    if scenario.stack.is_guess:  # its loss kernel, adapters' format, copies beside the weights, age of its libraries
        guess, guess_held = spread["spread_unknown"] * coming, spread["spread_unknown_held"] * held
        context = float(terms["framework"])
    half = _Z90 * sqrt(
        (spread["spread_held"] * held) ** 2
        + (spread["spread_dynamic"] * coming) ** 2
        + (spread["spread_comm"] * terms["comm_buffers"]) ** 2
        + (spread["spread_slack"] * slack) ** 2
        + uneven**2
        + guess**2
        + guess_held**2
        + (spread["spread_fixed_mib"] * MIB) ** 2
        + context**2
    )
    return max(expected - half, 0.6 * expected), expected + half
