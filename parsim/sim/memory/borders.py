"""Messages between pipeline ranks in the memory of PyTorch's runtime, which lets go of them late.

received   a buffer for each micro-batch and message, for the whole run
sent       every tensor until the step ends, where the runtime waits for all that it sent
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.schedule import Schedule
from parsim.sim.memory.moments import Moment


class Borders(NamedTuple):
    """Bytes of a micro-batch between a rank's chunks and other ranks, (chunks, B) each.

    Inputs that come from another rank, whose gradients go back there, and outputs that go to one.
    """

    inputs: Array
    outputs: Array

    @classmethod
    def of(cls, schedule: Schedule, sent: Array, stages: Sequence[int]) -> Borders:
        """Look who is on which rank; `sent` (S, B) are the bytes that a stage sends on."""
        ranks, last = schedule.stage_rank, schedule.num_stages - 1
        before = [not schedule.is_first(s) and ranks[s - 1] != ranks[s] for s in stages]
        after = [not schedule.is_last(s) and ranks[min(s + 1, last)] != ranks[s] for s in stages]
        return cls(
            inputs=np.stack([sent[s - 1] * far for s, far in zip(stages, before, strict=True)]),
            outputs=np.stack([sent[s] * far for s, far in zip(stages, after, strict=True)]),
        )

    def received(self, microbatches: int) -> Array:
        """Buffers that messages of so many micro-batches are received into, all run long, (B,).

        What a stage's forward received is what it keeps, and is counted there while in flight.
        """
        return np.asarray(microbatches * (self.inputs + self.outputs).sum(axis=0))

    def sent(self, moment: Moment) -> Array:
        """What was sent so far, (B,): torch's runtime waits for messages at the end of the step.

        Outputs, and gradients of inputs. Source: `_PipelineScheduleRuntime` of torch 2.13.
        """
        forwards = np.array(moment.forwards, dtype=np.float64)
        backwards = np.array(moment.backwards, dtype=np.float64)
        return np.asarray(forwards @ self.outputs + backwards @ self.inputs)
