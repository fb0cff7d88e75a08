"""What products lose beside exchanges on the same device: a collective, or messages both ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from executor.calibration.timing.bench import Bench
from parsim.units import MIB

Wait = Callable[[], object]
ROUNDS = 5
"""Times that each is measured at a moment, in turns; the slowest rank counts. One behind the other,
`two_way_loss` came out between 0.5 and 1 on one machine; in turns, between 0.8 and 1."""
BESIDE = {"cpu": (512, 16 * MIB), "cuda": (4096, 256 * MIB)}
"""Edge of the products and bytes of the exchange that run beside each other."""
SIZES = (0.5, 1.0, 2.0)
"""Messages both ways are timed at these multiples of those bytes, and count together."""
MOST_PRODUCTS = 200


def interference(bench: Bench) -> float:
    """Share of an all-reduce's time that products beside it lose, 0 to 1, on the slower rank."""
    data = torch.zeros(BESIDE[bench.device.type][1] // 4, device=bench.device)

    def begin() -> Wait:
        wait: Wait = dist.all_reduce(data, async_op=True).wait
        return wait

    return _lost_beside(bench, begin)


def message_interference(bench: Bench) -> float:
    """Share of the time of messages that products beside them lose, as for `interference`.

    Each rank sends to the next one and receives from the one before.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    return _lost_beside(bench, _messages(bench, (rank + 1) % world, (rank - 1) % world))


def two_way_loss(bench: Bench) -> float:
    """By what share messages between two ranks take longer while as many go the other way."""
    rank = dist.get_rank()
    there = {0: (1, None), 1: (None, 0)}.get(rank, (None, None))  # to whom, and from whom
    both = {0: (1, 1), 1: (0, 0)}.get(rank, (None, None))
    messages = [_messages(bench, *way, share) for share in SIZES for way in (there, both)]
    seconds = bench.slowest_of([_waited(begin) for begin in messages], ROUNDS)
    return growth(sum(seconds[::2]), sum(seconds[1::2]))


def _messages(
    bench: Bench, to: int | None, source: int | None, share: float = 1.0
) -> Callable[[], Wait]:
    """What starts a message to a rank and one from another; None: no such message."""
    count = int(share * BESIDE[bench.device.type][1] // 4)
    sent, received = (torch.zeros(count, device=bench.device) for _ in range(2))

    def begin() -> Wait:
        sends = [] if to is None else [dist.P2POp(dist.isend, sent, to)]
        receipts = [] if source is None else [dist.P2POp(dist.irecv, received, source)]
        asked = [*sends, *receipts]
        messages = dist.batch_isend_irecv(asked) if asked else []
        return lambda: [message.wait() for message in messages]

    return begin


def _waited(begin: Callable[[], Wait]) -> Callable[[], object]:
    return lambda: begin()()


def _lost_beside(bench: Bench, begin: Callable[[], Wait]) -> float:
    """(T - max(C, G)) / min(C, G) of compute alone C, an exchange alone G, and both together T.

    Of as many products as take about as long as the exchange, so that neither hides the loss;
    products large enough for all multiprocessors: a GPU runs small ones on those that NCCL leaves.
    Leaves out what memory-bound kernels lose beside an exchange.

    Args:
        bench: the ranks and their clock.
        begin: starts the exchange and gives what waits for it.
    """
    edge, _ = BESIDE[bench.device.type]
    a = bench.operators.normal(edge, edge)
    once = bench.slowest(lambda: torch.mm(a, a), ROUNDS)
    count = products_beside(bench.slowest(_waited(begin), ROUNDS), once)

    def compute() -> None:
        for _ in range(count):
            torch.mm(a, a)

    def both() -> None:
        wait = begin()
        compute()
        wait()

    return lost(*bench.slowest_of((compute, _waited(begin), both), ROUNDS))


def products_beside(wire: float, once: float) -> int:
    """How many products of `once` seconds are about as long as a collective."""
    return min(max(round(wire / once), 1), MOST_PRODUCTS)


def lost(alone: float, wire: float, together: float) -> float:
    """The share above, from the three times."""
    return (together - max(alone, wire)) / min(alone, wire)


def growth(alone: float, together: float) -> float:
    """By what share it is longer together than alone."""
    return together / alone - 1.0
