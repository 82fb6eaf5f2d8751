"""How often to save: the Young/Daly interval, in seconds, from what a save costs and how often runs die.

Young (1974) and Daly (2006): the overhead save/interval + interval/(2 x mtbf) is least at sqrt(2 x save x mtbf).
The interval formula is kept in core because planning prices it and running follows it.
"""

import math

DEFAULT_MTBF_S = 24 * 3600.0  # one interruption a day: a cautious figure for rented and desktop machines
MIN_INTERVAL_S = 30.0
LEAST_OVERHEAD_FRAC = 0.02  # saves may take 2 % of the run at most


def young_daly_interval_s(save_s: float, mtbf_s: float = DEFAULT_MTBF_S) -> float:
    """Seconds of training between two saves that take `save_s` each, machines failing every `mtbf_s`.

    Never below 30 s, and never so often that saving takes more than 2 % of the run.
    """
    best = math.sqrt(2.0 * max(save_s, 0.0) * mtbf_s)
    return max(best, save_s / LEAST_OVERHEAD_FRAC, MIN_INTERVAL_S)
