"""From the blocks of a file to the records: software, model, cluster, plan and space."""

from __future__ import annotations

from parsim.cost.job import Job
from parsim.cost.software import GENERIC, Software, software
from parsim.model.transformer import build_transformer
from parsim.scenario.background import build_background
from parsim.scenario.hardware import build_cluster, catalog_files
from parsim.scenario.jitter import build_jitter
from parsim.scenario.model import build_spec
from parsim.scenario.plan import build_plan, build_space
from parsim.scenario.positions import Tree
from parsim.scenario.record import Scenario
from parsim.scenario.schema import ScenarioFile


def build_scenario(tree: Tree, file: ScenarioFile) -> Scenario:
    """Build every record and check that they fit together.

    Raises:
        ScenarioError: a name is unknown, or model or cluster cannot be built as described.
        PlanError: the plan, or what a search's plans share, is not legal.
        ScheduleError: the plan's schedule is a file that is wrong or does not fit.
    """
    notes: list[str] = []
    if "precision" not in file.training.given():
        notes.append(f"precision is not stated: '{file.training.precision}' is assumed")
    stack = _software(tree, file, notes)
    spec = build_spec(tree, file.model, stack, notes)
    cluster = build_cluster(tree, file.cluster, notes)
    job = Job(model=build_transformer(spec), cluster=cluster, software=stack)
    if file.plan is None and file.search is None:
        raise tree.error((), "has no plan block and no search block; add 'search: {}' to search "
                             "every legal plan")  # fmt: skip
    plan = build_plan(tree, file, job, notes)
    return Scenario(
        name=tree.file.stem,
        description=file.description.strip(),
        path=tree.file,
        job=job,
        spec=spec,
        plan=plan,
        space=build_space(tree, file, job, plan),
        global_batch_size=file.training.global_batch_size,
        notes=tuple(notes),
        catalog=catalog_files(tree, file.cluster),
        jitter=build_jitter(tree, file, plan),
        background=build_background(tree, file, cluster),
    )


def _software(tree: Tree, file: ScenarioFile, notes: list[str]) -> Software:
    if "software" not in file.given():
        notes.append(f"software is not stated: '{GENERIC}' is assumed")
        return software(GENERIC)
    with tree.located("software"):
        return software(file.software)
