"""Shared memory of loader workers: bytes of batches in flight, against what /dev/shm holds (case 28).

A container's default is 64 MiB; a worker that fills it dies with a bus error while the host has memory to spare.
"""


def batch_bytes(batch: int, seq_len: int, tensors: int, itemsize: int) -> int:
    """Bytes of one collated batch: `tensors` of batch x seq_len elements."""
    return batch * seq_len * tensors * itemsize


def shm_bytes(batch: int, seq_len: int, tensors: int, itemsize: int, workers: int, prefetch: int) -> int:
    """Bytes that `workers` keep in shared memory, each with `prefetch` batches ready."""
    return batch_bytes(batch, seq_len, tensors, itemsize) * workers * prefetch


def workers_that_fit(available_bytes: int, per_batch_bytes: int, workers: int, prefetch: int) -> int:
    """The most workers, at most `workers`, whose batches fit into `available_bytes`; 0 means load in the process."""
    per_worker = max(1, per_batch_bytes * prefetch)
    return max(0, min(workers, available_bytes // per_worker))
