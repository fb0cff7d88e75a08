"""Tensors that were sent, kept until they have arrived.

gloo tells whether a message has arrived to whoever waits for it alone: asked, it answers that none
has. So a thread waits for one after the other; without it, all messages of a training would stay.
NCCL's can be asked, and waiting for them would hold up the kernels behind.
"""

from __future__ import annotations

import weakref
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeAlias

import torch
import torch.distributed as dist

_Message: TypeAlias = tuple[dist.Work, torch.Tensor]

BESIDE = "beside-the-step"
"""Name of threads that wait for messages while the step goes on; nothing that computes waits."""


class Outbox:
    """Keeps what is sent from `keep` until it has arrived; `close` waits for all of it.

    With `asks` it looks at each further message which ones have arrived, else a thread waits: a
    daemon, so that a rank that fails ends though nobody takes its messages. It is started once, at
    the first message: a thread that starts when memory is short may die without a word, and Python
    would wait for it forever.
    """

    def __init__(self, *, asks: bool = False) -> None:
        self._asks = asks
        self._asked: list[_Message] = []
        self._left: SimpleQueue[_Message | Event | None] = SimpleQueue()
        self._started = False
        self._errors: list[BaseException] = []

    def keep(self, work: dist.Work, tensor: torch.Tensor) -> None:
        """Keep a tensor until its message has arrived."""
        if self._asks:
            self._asked = [message for message in self._asked if not message[0].is_completed()]
            self._asked.append((work, tensor))
            return
        if not self._started:
            self._start()
        self._left.put((work, tensor))

    def close(self) -> None:
        """Wait until all has arrived; it may be used again.

        Raises:
            BaseException: what a message failed of.
        """
        while self._asked:
            self._asked.pop()[0].wait()
        if self._started:
            arrived = Event()
            self._left.put(arrived)
            arrived.wait()
        if self._errors:
            raise self._errors[0]

    def _start(self) -> None:
        self._started = True
        Thread(target=_wait, args=(self._left, self._errors), name=BESIDE, daemon=True).start()
        weakref.finalize(self, self._left.put, None)


def _wait(left: SimpleQueue[_Message | Event | None], errors: list[BaseException]) -> None:
    """Let go of one tensor after the other, and tell whoever waits that nothing is left."""
    while (message := left.get()) is not None:
        if isinstance(message, Event):
            message.set()
            continue
        try:
            message[0].wait()
        except BaseException as error:  # whoever closes raises it
            errors.append(error)
        del message
