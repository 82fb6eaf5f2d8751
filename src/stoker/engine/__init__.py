"""The engine: runs a plan in torch, records what happened, and saves so that nothing is lost."""

import os

# OpenMP's threads spin at barriers for long by default: with any other busy process on the cores, a step of a small
# model then takes 50 times as long. Not spinning at all costs a quiet machine nearly half its speed. A short spin is
# within a fifth of the best on both (benchmarks/LOG.md). Must be set before torch loads libgomp.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "2000"
