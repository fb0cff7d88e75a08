"""An operator that is known by its measured seconds alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Something whose seconds were measured: a module that has no formula, a profile's layer.

    `forward` and `backward` are seconds of a sample on the device named in the profile, behind
    `forward_call` and `backward_call` of each call, its launch among them; `saved` are the values
    that it keeps for backward. Only that device's predictions may use it.

    Leaves out: what a batch of another size gains or loses: seconds lie on a line over it.
    """

    name: str
    forward: float
    backward: float
    saved: int
    repeated_parameters: int
    forward_call: float = 0.0
    backward_call: float = 0.0

    tokens = 1
    split_parameters = 0
