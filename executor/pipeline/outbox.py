"""Tensors that were sent, kept until they have arrived.

gloo tells whether a message has arrived to whoever waits for it alone: asked, it answers that none
has. So a thread waits for one after the other; without it, all messages of a training would stay.
NCCL's can be asked, and waiting for them would hold up the kernels behind.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread

import torch
import torch.distributed as dist

BESIDE = "beside-the-step"
"""Name of threads that wait for messages while the step goes on; nothing that computes waits."""


class Outbox:
    """Keeps what is sent from `keep` until it has arrived; `close` waits for all of it.

    With `asks` it looks at each further message which ones have arrived, else a thread waits: a
    daemon, so that a rank that fails ends though nobody takes its messages.
    """

    def __init__(self, *, asks: bool = False) -> None:
        self._asks = asks
        self._asked: list[tuple[dist.Work, torch.Tensor]] = []
        self._left: SimpleQueue[tuple[dist.Work, torch.Tensor] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def keep(self, work: dist.Work, tensor: torch.Tensor) -> None:
        """Keep a tensor until its message has arrived."""
        if self._asks:
            self._asked = [message for message in self._asked if not message[0].is_completed()]
            self._asked.append((work, tensor))
            return
        if self._thread is None:
            self._thread = Thread(target=self._wait, name=BESIDE, daemon=True)
            self._thread.start()
        self._left.put((work, tensor))

    def close(self) -> None:
        """Wait until all has arrived; it may be used again."""
        while self._asked:
            self._asked.pop()[0].wait()
        if self._thread is not None:
            self._left.put(None)
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def _wait(self) -> None:
        try:
            while (message := self._left.get()) is not None:
                message[0].wait()
                del message
        except BaseException as error:  # whoever closes raises it
            self._error = error
