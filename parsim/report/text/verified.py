"""How far a run's gradients are from one process's, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from parsim.units import percent


def verified_lines(verification: dict[str, Any] | None) -> str:
    """Whether loss and gradients agree with those of one process, or how far they are."""
    if verification is None:
        return ""
    gradient, loss = (_error(verification[f"max_{name}_error"]) for name in ("gradient", "loss"))
    return (
        f"verified against {verification['reference']}: largest gradient error {gradient} "
        f"({verification['parameter'] or 'none'}; at most {verification['bound']:.1e}), "
        f"loss error {loss} (at most {verification['loss_bound']:.1e})"
    )


def undecided(verification: Mapping[str, Any] | None) -> Text | str:
    """What to say of a bound that a wrong plan would be within too."""
    if verification is None or verification.get("decides", True):
        return ""
    return Text(
        f"this bound decides nothing: a gradient may be {percent(verification['bound'])} off by "
        f"roundings alone, where a ReLU, a pool or a router then chooses otherwise; verify with "
        f"another --seed, and in fp32",
        style="bold red",
    )


def verdict(verification: dict[str, Any]) -> str:
    """What is wrong with a run whose verification is not within its bound."""
    gradient, loss = (_error(verification[f"max_{name}_error"]) for name in ("gradient", "loss"))
    return (
        f"verification failed: the gradient of {verification['parameter'] or 'no parameter'} is "
        f"off by {gradient} and the loss by {loss} from {verification['reference']}; allowed: "
        f"{verification['bound']:.1e} and {verification['loss_bound']:.1e}; this plan trains "
        f"wrongly on this machine: use another plan, and report this one with its run.json"
    )


def _error(value: float | None) -> str:
    return "an infinite or undefined number" if value is None else f"{value:.1e}"
