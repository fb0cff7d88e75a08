"""Layers whose activations a published recipe keeps on the host, which no table prints.

`data/recipes/offload/STACK.csv` has a line for each model, device and precision, and for each
release from which on it holds. They are of plans whose parameters are sharded by FSDP: others of
the same model have a pipeline instead, and nothing on the host.

Source: `cpu_offloading_num_layers` of the recipe files at the tags that data/README.md names.
Leaves out: command-line overrides of a recipe, which nothing prints.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from parsim.validation.step.assumptions import release_number
from parsim.validation.step.known_models import known_model
from parsim.validation.step.measured_run import MeasuredRun


def offload_layers(run: MeasuredRun) -> int:
    """Layers of a run that keep their activations on the host: as stated, else its recipe's."""
    if run.offload_layers is not None:
        return run.offload_layers
    spec, release = known_model(run.model), release_number(run.release)
    if spec is None or not release or run.fsdp_size <= 1:
        return 0
    fitting = [
        (release_number(line["since"]), int(line["offload_layers"]))
        for line in _lines(run.stack)
        if line["model"] == spec.name
        and line["precision"] == run.precision
        and run.gpu_type.startswith(line["device"])
    ]
    return max((fit for fit in fitting if fit[0] <= release), default=((), 0))[1]


@cache
def _lines(stack: str) -> tuple[dict[str, str], ...]:
    """All known lines of a stack."""
    name = stack.replace("-", "_")
    file = files("parsim.validation") / "data" / "recipes" / "offload" / f"{name}.csv"
    if not file.is_file():
        return ()
    return tuple(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
