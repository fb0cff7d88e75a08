"""What published recipes set and no table prints: recomputed modules, dispatcher, CUDA graphs.

`data/recipes/STACK.csv` has a line for each model, device, precision and batch, and for each
release from which on it holds. A row of a table takes what it leaves blank from the recipe of its
release; rows of releases before the first line, and rows without a release, have none.

Source: recipe files at the tags that data/README.md names.
Leaves out: command-line overrides of a recipe, which nothing prints.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from parsim.plan.names import RECOMPUTE_MODULES
from parsim.validation.step.assumptions import release_number
from parsim.validation.step.known_models import known_mixture, known_model
from parsim.validation.step.measured_run import MeasuredRun


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
    quantized_logits: bool
    quantized_attention: bool
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
        recipe
        for recipe in recipes(run.stack)
        if recipe.model == spec.name
        and run.gpu_type.startswith(recipe.device)
        and recipe.precision == run.precision
        and recipe.since <= release
    )
    return max(fitting, key=lambda recipe: recipe.likeness(run), default=None)


@cache
def recipes(stack: str) -> tuple[Recipe, ...]:
    """All known recipes of a stack."""
    return tuple(map(_read, _lines(stack)))


@cache
def _lines(stack: str, *folders: str) -> tuple[dict[str, str], ...]:
    """The lines of a stack's file in a folder of the recipes; none where it has no file."""
    name = stack.replace("-", "_")
    file = files("parsim.validation").joinpath("data", "recipes", *folders, f"{name}.csv")
    if not file.is_file():
        return ()
    return tuple(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def _read(row: dict[str, str]) -> Recipe:
    counts = ("n_gpus", "global_batch_size", "predicted_tokens")
    switches = (*("overlap", "fused_mlp", "quantized_logits", "quantized_attention", "filled"),)
    values: dict[str, Any] = {
        **row,
        **{name: int(row[name]) for name in counts},
        **{name: row[name] == "yes" for name in switches},
        **{name: _listed(row[name]) for name in ("recompute", "graphs")},
        "since": release_number(row["since"]),
    }
    return Recipe(**values)


def _listed(cell: str) -> tuple[str, ...]:
    return tuple(cell.split("+")) if cell else ()


class DenseRecipe(NamedTuple):
    """What a recipe of a dense model repeats in backward, and layers that it keeps on the host."""

    recompute: tuple[str, ...] = ()
    offload_layers: int = 0


def dense_recipe(run: MeasuredRun) -> DenseRecipe:
    """What a run's recipe sets; nothing where none is known.

    `data/recipes/dense/STACK.csv` has a line for each model, device and precision, and for each
    release from which on it holds. They are of plans whose parameters are sharded by FSDP: others
    of the same model have a pipeline instead, and nothing on the host.

    Source: `cpu_offloading_num_layers` of the recipe files, and `remat_policy` and its tensors of
    the launch scripts, at the tags that data/README.md names.
    Leaves out: command-line overrides of a recipe, which nothing prints.
    """
    spec, release = known_model(run.model), release_number(run.release)
    if spec is None or not release or run.fsdp_size <= 1:
        return DenseRecipe()
    fitting = [
        line
        for line in _lines(run.stack, "dense")
        if line["model"] == spec.name
        and line["precision"] == run.precision
        and run.gpu_type.startswith(line["device"])
        and release_number(line["since"]) <= release
    ]
    if not fitting:
        return DenseRecipe()
    line = max(fitting, key=lambda line: release_number(line["since"]))
    return DenseRecipe(_listed(line["recompute"]), int(line["offload_layers"]))


def repeated_modules(run: MeasuredRun, recipe: Recipe | None = None) -> tuple[str, ...]:
    """Modules that a run repeats by its recipe, where the row does not say what it repeats."""
    if run.recompute:
        modules = _listed(run.recompute)
        return modules if modules[0] in RECOMPUTE_MODULES else ()
    return recipe.recompute if recipe else dense_recipe(run).recompute


def offload_layers(run: MeasuredRun) -> int:
    """Layers of a run that keep their activations on the host: as stated, else its recipe's."""
    if run.offload_layers is not None:
        return run.offload_layers
    return dense_recipe(run).offload_layers
