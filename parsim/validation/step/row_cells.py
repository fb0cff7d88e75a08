"""What the cells of a table of training runs hold beside numbers: profiles, orders, overlaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from parsim.cost.software.habits.experts import DISPATCHERS
from parsim.errors import shown
from parsim.plan.precision import SUMS, TENSOR_SCALES
from parsim.units import whole_number
from parsim.validation.cells import LARGEST, Cells
from parsim.validation.step.blank_sizes import EXPERTS, SIZES
from parsim.validation.tables import RowSkipped

TIMES = ("t_forward_ms", "t_backward_input_ms", "t_backward_weight_ms")
"""Milliseconds of a pipeline rank and micro-batch, its chunks together."""
ORDERED = ("pp", "dp", "cp", "tp")
"""What a cell of `rank_order` names, with + between, outermost first."""
OVERLAPS = ("none", "dp", "fsdp", "tp", "p2p", "p2p_scatter_gather")
"""What a cell of `overlap` may list, with + between."""


SCOPES = ("all", "attn", "mamba", "mlp", "moe_preprocess", "moe_router")
"""What a cell of `graph_scopes` may list, with + between (`cost/layer/kept`, `launched`)."""


LACKS = ("accumulation", "zero2")
"""What a cell of `stack_lacks` may list, with + between: what a stack had not when a run was made,
several micro-batches without a pipeline or a ZeRO stage."""


class Profile(NamedTuple):
    """Seconds of F, I and W of a pipeline rank and micro-batch, and of a message."""

    forward: float
    backward_input: float
    backward_weight: float
    message: float


class RunCells(Cells):
    """One row of a table of training runs."""

    def why_blank(self, name: str) -> str:
        """Why a blank size of the model was not filled."""
        if name not in SIZES and name not in EXPERTS:
            return ""
        model = self.text("model") or ""
        return f" and not known of model {model!r}; write it, or a name of `parsim catalog models`"

    def fraction(self, name: str) -> float | None:
        """A share below 1; None where the cell is blank."""
        value = self.any_number(name)
        if value is not None and not 0.0 <= value < 1.0:
            raise RowSkipped(f"{name}={self.text(name)!r} must be at least 0 and below 1")
        return value

    def profile(self) -> Profile | None:
        """All of F, I and W, or none; a message that is not stated takes no time."""
        stated = {name: self.number(name) for name in TIMES}
        message = 0.0 if self.text("t_p2p_ms") in ("0", "0.0") else self.number("t_p2p_ms")
        missing = [name for name, value in stated.items() if value is None]
        if len(missing) == len(TIMES) and message is None:
            return None
        if missing:
            raise RowSkipped(f"{', '.join(TIMES)} belong together, but {missing[0]} is not stated")
        times = (1e-3 * (value or 0.0) for value in (*stated.values(), message))
        return Profile(*times)

    def flag(self, name: str) -> bool | None:
        """Yes or no; None where the cell is blank."""
        cell = self.text(name)
        if cell is None:
            return None
        if cell not in ("yes", "no"):
            raise RowSkipped(f"{name}='{shown(cell)}' must be yes, no or blank")
        return cell == "yes"

    def rank_order(self) -> tuple[str, ...] | None:
        """The axes of a plan, with both data axes where the cell says dp."""
        cell = self.text("rank_order")
        if cell is None:
            return None
        words = cell.split("+")
        if sorted(words) != sorted(ORDERED):
            allowed = "+".join(ORDERED)
            raise RowSkipped(
                f"rank_order='{shown(cell)}' must name each axis of {allowed} once, outermost first"
            )
        both = {"dp": ("dp_replicate", "dp_shard")}
        return tuple(axis for word in words for axis in both.get(word, (word,)))

    def stage_layers(self) -> tuple[int, ...] | None:
        """Layers of each stage; 0 of one that holds the embedding or the head alone."""
        cell = self.text("stage_layers")
        if cell is None:
            return None
        counts = [count for count in map(whole_number, cell.split("+")) if count is not None]
        if len(counts) <= cell.count("+") or max(counts) > LARGEST:
            raise RowSkipped(
                f"stage_layers='{shown(cell)}' must be counts with + between, such as 7+8+8+7"
            )
        return tuple(counts)

    def graph_scopes(self) -> tuple[str, ...]:
        """What graphs launch, of SCOPES; empty where the cell is blank."""
        return self._words("graph_scopes", SCOPES)

    def stack_lacks(self) -> tuple[str, ...]:
        """What the stack of that day had not, of LACKS; empty where the cell is blank."""
        return self._words("stack_lacks", LACKS)

    def _words(self, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """The words of a cell with + between, each of those allowed."""
        cell = self.text(name)
        words = tuple(cell.split("+")) if cell else ()
        for word in words:
            if word not in allowed:
                raise RowSkipped(
                    f"{name}='{shown(word)}' is unknown; allowed: {', '.join(allowed)}"
                )
        return words

    def gradient_precision(self) -> str | None:
        """What gradients are summed in."""
        return self._word("gradient_precision", SUMS)

    def expert_dispatcher(self) -> str | None:
        """What moves tokens to experts."""
        return self._word("expert_dispatcher", DISPATCHERS)

    def fp8_scales(self) -> str | None:
        """Scales of 8-bit products with one a tensor."""
        return self._word("fp8_scales", TENSOR_SCALES)

    def _word(self, name: str, allowed: Iterable[str]) -> str | None:
        """The cell, which must be one of those allowed; None where it is blank."""
        cell = self.text(name)
        if cell is not None and cell not in allowed:
            raise RowSkipped(f"{name}='{shown(cell)}' is unknown; allowed: {', '.join(allowed)}")
        return cell

    def overlap(self) -> frozenset[str] | None:
        """What runs beside compute, of OVERLAPS."""
        cell = self.text("overlap")
        if cell is None:
            return None
        for word in cell.split("+"):
            if word not in OVERLAPS:
                raise RowSkipped(
                    f"overlap='{shown(word)}' is unknown; allowed: {', '.join(OVERLAPS)}"
                )
        return frozenset(cell.split("+"))
