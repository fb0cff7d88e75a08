"""What published recipes set and no table prints: recomputed modules, dispatcher, CUDA graphs.

`data/recipes/STACK.csv` has a line for each model, device, precision and batch, and for each
release from which on it holds. A row of a table takes what it leaves blank from the recipe of its
release; rows of releases before the first line, and rows without a release, have none.

Source: recipe files at the tags that data/README.md names.
Leaves out: command-line overrides of a recipe, which nothing prints.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from parsim.validation.known_models import known_mixture
from parsim.validation.schema import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One line: what it is of, and what it sets."""

    model: str
    device: str
    precision: str
    since: tuple[int, ...]
    n_gpus: int
    global_batch_size: int
    recompute: tuple[str, ...]
    dispatcher: str
    overlap: bool
    graphs: tuple[str, ...]
    fused_mlp: bool
    predicted_tokens: int
    filled: bool

    def stage_layers(self, layers: int, stages: int) -> tuple[int, ...] | None:
        """Layers of each stage where the recipe fills stages and leaves the last one short.

        One more than an even share, so that the last stage has room for the logits.
        """
        share = -(-(layers + (not self.predicted_tokens)) // stages)
        rest = layers - share * (stages - 1)
        if not self.filled or stages == 1 or share < 2 or rest < 0:
            return None
        if rest == 0:  # the first one, which holds the embedding, gives a layer away
            return (share - 1, *[share] * (stages - 2), 1)
        return (*[share] * (stages - 1), rest)

    def likeness(self, run: MeasuredRun) -> tuple[bool, bool, tuple[int, ...]]:
        """How well it fits a run of its model, device and precision."""
        same = self.n_gpus == run.n_gpus
        return same and self.global_batch_size == run.global_batch_size, same, self.since


def recipe_of(run: MeasuredRun) -> Recipe | None:
    """The recipe that a run of a stack's release follows, None where none is known."""
    spec, release = known_mixture(run.model), release_number(run.release)
    if spec is None or not release:
        return None
    fitting = (
        one
        for one in recipes(run.stack)
        if one.model == spec.name
        and run.gpu_type.startswith(one.device)
        and one.precision == run.precision
        and one.since <= release
    )
    return max(fitting, key=lambda one: one.likeness(run), default=None)


def release_number(release: str) -> tuple[int, ...]:
    """A release as numbers: 26.04.01 is (26, 4, 1)."""
    return tuple(int(part) for part in release.split(".") if part.isdigit())


@cache
def recipes(stack: str) -> tuple[Recipe, ...]:
    """All known recipes of a stack."""
    name = stack.replace("-", "_")
    file = files("parsim.validation") / "data" / "recipes" / f"{name}.csv"
    if not file.is_file():
        return ()
    return tuple(_read(file.read_text(encoding="utf-8")))


def _read(text: str) -> Iterator[Recipe]:
    for row in csv.DictReader(text.splitlines()):
        yield Recipe(
            model=row["model"],
            device=row["device"],
            precision=row["precision"],
            since=release_number(row["since"]),
            n_gpus=int(row["n_gpus"]),
            global_batch_size=int(row["global_batch_size"]),
            recompute=_listed(row["recompute"]),
            dispatcher=row["dispatcher"],
            overlap=row["overlap"] == "yes",
            graphs=_listed(row["graphs"]),
            fused_mlp=row["fused_mlp"] == "yes",
            predicted_tokens=int(row["predicted_tokens"]),
            filled=row["filled"] == "yes",
        )


def _listed(cell: str) -> tuple[str, ...]:
    return tuple(cell.split("+")) if cell else ()
