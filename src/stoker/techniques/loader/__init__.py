"""Loading: what worker processes cost."""

from stoker.techniques.loader.shared_memory import batch_bytes, shm_bytes, workers_that_fit

__all__ = ["batch_bytes", "shm_bytes", "workers_that_fit"]
