"""What was sent stays until it has arrived, and no longer."""

from __future__ import annotations

import weakref
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch

from executor.pipeline.outbox import BESIDE, Outbox


class Message:
    """A message that arrives when it is told to; asked whether it has, it says no, as gloo does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.arrived, self.error = Event(), error

    def wait(self) -> None:
        self.arrived.wait(10.0)
        if self.error is not None:
            raise self.error

    def is_completed(self) -> bool:
        return False


def sent(outbox: Outbox, message: Message) -> Event:
    """Keep a tensor until a message has arrived; set when the tensor is gone."""
    tensor, gone = torch.zeros(4), Event()
    weakref.finalize(tensor, gone.set)
    outbox.keep(cast(Any, message), tensor)
    return gone


def test_a_tensor_is_let_go_when_it_has_arrived_and_not_before() -> None:
    outbox, messages = Outbox(), [Message(), Message()]
    first, second = (sent(outbox, message) for message in messages)
    assert not first.wait(0.05)
    messages[0].arrived.set()
    assert first.wait(5.0)
    assert not second.wait(0.05)
    messages[1].arrived.set()
    outbox.close()
    assert second.is_set()
    outbox.close()  # nothing is left


def test_whoever_closes_hears_of_a_message_that_failed() -> None:
    outbox, message = Outbox(), Message(RuntimeError("connection closed"))
    sent(outbox, message)
    message.arrived.set()
    with pytest.raises(RuntimeError, match="connection closed"):
        outbox.close()


def test_one_thread_serves_all_steps_and_ends_with_its_outbox() -> None:
    def threads() -> set[Thread]:
        return {thread for thread in enumerate_threads() if thread.name == BESIDE}

    before, outbox = threads(), Outbox()
    assert threads() == before
    started = set()
    for _ in range(3):
        message = Message()
        sent(outbox, message)
        started |= threads() - before
        message.arrived.set()
        outbox.close()
    (thread,) = started
    del outbox
    thread.join(5.0)
    assert not thread.is_alive()


def test_messages_that_can_be_asked_are_let_go_at_the_next_one() -> None:
    class Answering(Message):
        """A message that says when it has arrived, as NCCL's do."""

        def is_completed(self) -> bool:
            return self.arrived.is_set()

    outbox, messages = Outbox(asks=True), [Answering(), Answering(), Answering()]
    first, second = (sent(outbox, message) for message in messages[:2])
    messages[0].arrived.set()
    third = sent(outbox, messages[2])
    assert [gone.is_set() for gone in (first, second, third)] == [True, False, False]
    messages[1].arrived.set()
    messages[2].arrived.set()
    outbox.close()
    assert second.is_set()
    assert third.is_set()
