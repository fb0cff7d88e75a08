"""What an optimizer keeps of each parameter, and what its update moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Bytes a parameter, all in fp32: `states` stay, `moved` are read and written by an update.

    Read are the parameter, its gradient and the states, written parameter and states:

        adamw          4 + 4 + 2 x 4  read,  4 + 2 x 4 written
        sgd_momentum   4 + 4 + 4      read,  4 + 4     written
        sgd            4 + 4          read,  4         written

    Source: the update rules (Loshchilov and Hutter 2019, algorithm 2; Polyak 1964).
    """

    name: str
    states: int
    moved: float


ADAMW = Optimizer(name="adamw", states=8, moved=28.0)
CLIP = 1.0
"""The norm that gradients are clipped to where nothing is said (Brown et al. 2020, appendix B)."""

OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        ADAMW,
        Optimizer(name="sgd", states=0, moved=12.0),
        Optimizer(name="sgd_momentum", states=4, moved=20.0),
    )
}
