"""Single-process DataParallel: threads of one process, a copy of the model for each of them.

    copy 0   scatter | replicate | F | gather, loss | B | reduce | update
    copy 1                       | F |              | B |

As `torch.nn.DataParallel`, which does nothing on a CPU: every pass the batch is cut as torch.chunk
cuts it, all copies get the weights of the first one, threads run forwards and backwards, the loss
is taken of all outputs together, and gradients are added on the first copy, which alone is updated.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.model.loss import Batch
from executor.model.stage import average_balance
from executor.strategies.compute import wait
from executor.strategies.replays.log import Trained
from executor.strategies.replica import FlatOptimizer, FlatReplica
from executor.strategies.work import Work


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of a model, the first one's weights being the model's, and their threads."""

    replicas: tuple[FlatReplica, ...]
    threads: ThreadPoolExecutor

    @classmethod
    def of(cls, replica: FlatReplica, count: int) -> Copies:
        """So many copies of a replica, itself the first."""
        device = replica.flat.device
        others = [FlatReplica(replica.spec, seed=0, device=device) for _ in range(count - 1)]
        for other in others:  # what no gradient trains never comes again
            other.model.load_state_dict(replica.model.state_dict())
        return cls((replica, *others), ThreadPoolExecutor(count))

    def gradient(self, work: Work, number: int) -> tuple[float, Tensor]:
        """Mean loss of the batches of all workers, and its gradient."""
        parts = [work.batches(worker, number) for worker in range(len(self.replicas))]
        whole = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        count, total = work.plan.num_microbatches, 0.0
        for replica in self.replicas:
            replica.forget()
            average_balance(replica.model, count * len(self.replicas))
        for batch in zip(whole[0].chunk(count), whole[1].chunk(count), strict=True):
            total += self._pass(work, number, batch, count)
        return total, sum((replica.summed for replica in self.replicas[1:]), self._first)

    @property
    def _first(self) -> Tensor:
        return self.replicas[0].summed

    def _pass(self, work: Work, number: int, batch: Batch, count: int) -> float:
        """Forward and backward of one micro-batch of all copies; its share of the mean loss."""
        first, *others = self.replicas
        for replica in others:
            replica.load(first.flat)
        scattered = batch[0].chunk(len(self.replicas))

        def forward(copy: int) -> Tensor:
            begin = time.perf_counter()
            outputs: Tensor = self.replicas[copy].model(scattered[copy])
            wait(work, copy, number, time.perf_counter() - begin)
            return outputs

        outputs = list(self.threads.map(forward, range(len(scattered))))
        gathered = torch.cat([output.detach() for output in outputs]).requires_grad_()
        loss = first.loss(gathered, batch[1]) / count
        loss.backward()
        if gathered.grad is None:
            raise RuntimeError("the loss has no gradient for the outputs of the copies")
        sizes = [len(output) for output in outputs]
        pairs = zip(outputs, gathered.grad.split(sizes), strict=True)
        list(self.threads.map(lambda pair: pair[0].backward(pair[1]), pairs))
        return float(loss.detach())


def single_process(work: Work) -> Trained:
    """Train with all copies in this process, which is the only one."""
    copies = Copies.of(work.replica, work.plan.dp)
    optimizer = FlatOptimizer(work.replica.flat, work.config)
    trained = Trained(weights=optimizer.flat)
    with copies.threads:
        for number in range(work.rounds):
            loss, gradient = copies.gradient(work, number)
            norm = optimizer.apply(gradient, number)
            work.end(trained, number, loss, norm)
    return trained
