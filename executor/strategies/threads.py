"""Threads beside the rounds of a worker, each of which answers another worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def answering(answer: Callable[..., None], calls: Iterable[tuple[Any, ...]]) -> Iterator[None]:
    """Run all calls in threads of their own; behind the block they have ended."""
    threads = [threading.Thread(target=answer, args=arguments) for arguments in calls]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()
