"""Units: SI inside (bytes, FLOP, seconds, USD); multiples of ten for GB, of two for GiB.

An 80 GB card shows 79.2 GiB: mixing the two units is a 7 % error, so each has its own name.
"""

from typing import Final

KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12
KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
GFLOP: Final = 10**9
TFLOP: Final = 10**12
MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
