"""The engine: runs a plan in torch, records what happened, and saves so that nothing is lost."""

import os

# OpenMP's threads spin at barriers by default; with any other busy process on the cores a step of a small model then
# takes 50 times as long (measured on two cores: 42 ms against 2.2 s). Must be set before torch loads libgomp.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
