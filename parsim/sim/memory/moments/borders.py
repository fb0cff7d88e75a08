"""Messages between pipeline ranks in memory: taken when they come, let go when they are used.

    a stage's input       is received where it is kept until its backward, and is counted there
    its output's gradient is received ahead of its backward
    its output            stays until that backward, though it was sent (torch's `fwd_cache`); on
                          one rank it is the next stage's input

So that no micro-batches but those in flight count. Source: `executor/pipeline/torch_stage.py`;
PyTorch's own stages have a buffer for each micro-batch and hold all that a step sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.schedule import Schedule


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

    @property
    def passing(self) -> Array:
        """What is on its way, (B,): at each border one message that comes."""
        return np.asarray((self.inputs + self.outputs).sum(axis=0))
