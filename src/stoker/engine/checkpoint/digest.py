"""A file's digest: SHA-256 over the SHA-256 of each 8 MiB, so that all cores hash one file.

SHA-256 is the fastest strong hash of the standard library where it was measured (2026-11-30): 1.04 GB/s a core beside
blake2b's 0.88 on this project's two-core machine, 1.10 beside 0.38 on the H200 host, whose 16 cores reach 13.8 GB/s,
ten times its disk.
"""

import hashlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

CHUNK_BYTES = 8 << 20
_SMALL_BYTES = 2 * CHUNK_BYTES
_MAX_THREADS = 16


def hash_threads() -> int:
    """Threads worth using for hashing: the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return min(_MAX_THREADS, len(os.sched_getaffinity(0)))
    return min(_MAX_THREADS, os.cpu_count() or 1)


class DigestPool:
    """Threads for the digests of one save or load; made for it and gone after it, so that no fork inherits them."""

    def __init__(self, expected_bytes: int) -> None:
        threads = hash_threads()
        self._pool = ThreadPoolExecutor(threads) if expected_bytes > _SMALL_BYTES and threads > 1 else None
        self.max_pending = 2 * threads

    def submit(self, views: list[memoryview]) -> "Future[bytes] | bytes":
        return self._pool.submit(_hash, views) if self._pool else _hash(views)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)


class FileDigest:
    """Takes a file's bytes in order. Views that were given must not change before `hexdigest` returns."""

    def __init__(self, pool: DigestPool) -> None:
        self._pool = pool
        self._views: list[memoryview] = []
        self._filled = 0
        self._total = 0
        self._done: list[bytes] = []
        self._pending: deque[Future[bytes] | bytes] = deque()

    def update(self, data: memoryview) -> None:
        self._total += len(data)
        while data:
            part = data[: CHUNK_BYTES - self._filled]
            self._views.append(part)
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == CHUNK_BYTES:
                self._flush()

    def hexdigest(self) -> str:
        if self._views:
            self._flush()
        while self._pending:
            self._collect()
        return hashlib.sha256(b"".join(self._done) + self._total.to_bytes(8, "big")).hexdigest()

    def _flush(self) -> None:
        self._pending.append(self._pool.submit(self._views))
        self._views, self._filled = [], 0
        while len(self._pending) > self._pool.max_pending:
            self._collect()

    def _collect(self) -> None:
        oldest = self._pending.popleft()
        self._done.append(oldest if isinstance(oldest, bytes) else oldest.result())


def digest_file(path: Path, pool: DigestPool) -> tuple[int, str]:
    """(bytes, digest) of the file as the disk has it. Raises OSError."""
    digest, total = FileDigest(pool), 0
    with path.open("rb", buffering=0) as stream:
        while True:
            buffer = bytearray(CHUNK_BYTES)
            count = stream.readinto(buffer)
            if not count:
                return total, digest.hexdigest()
            total += count
            digest.update(memoryview(buffer)[:count])


def _hash(views: list[memoryview]) -> bytes:
    result = hashlib.sha256()
    for view in views:
        result.update(view)
    return result.digest()
