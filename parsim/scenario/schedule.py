"""A schedule of the user's own: the CSV file that `plan.schedule` names.

Its path is relative to the scenario's file, or with `--set` to the working directory. The file
says on which rank each stage is and how many micro-batches there are, so that pp and v follow.
Where stages have replicas of their own, it has a line for each replica of each stage.
"""

from __future__ import annotations

from pathlib import Path

from parsim.errors import DeadlockError, InputError, ScheduleError
from parsim.files import MOST_ROWS, read_text
from parsim.plan import Plan
from parsim.scenario.positions import Tree
from parsim.scenario.schema.plan import PlanBlock
from parsim.schedule import Schedule, parse_user_schedule
from parsim.schedule.replicas import StageReplicas

SUFFIX = ".csv"
_KEY = ("plan", "schedule")


def read_schedule(tree: Tree, block: PlanBlock, notes: list[str]) -> Schedule | None:
    """The schedule of the plan's file, proven; None where the plan names no file.

    Its name is the path by which it was opened. `notes` takes what a prediction does not follow.

    Raises:
        ScheduleError: the file cannot be read, is wrong, or is for another pp or v than is
            written; the message is `file:line:column plan.schedule name:line, cell ...`.
        DeadlockError: its ranks wait for each other forever.
    """
    path = _path(tree, block)
    if path is None or "stages" in block.given():
        return None
    try:
        schedule = parse_user_schedule(str(path), _text(path))
        _check_sizes(schedule, block)
    except DeadlockError as wrong:
        raise DeadlockError(tree.message(_KEY, str(wrong)), wrong.cycle) from None
    except InputError as wrong:
        raise ScheduleError(tree.message(_KEY, str(wrong))) from None
    if not schedule.is_compute_only:
        notes.append(
            f"{path} has communication of its own: it is run as it stands, but a prediction sends "
            f"every result at once and reduces a stage's gradients behind its last backward"
        )
    return schedule


def read_replicas_rows(tree: Tree, block: PlanBlock) -> dict[str, str]:
    """The plan's fields of a file with a line for each replica of its stages; none without one.

    Raises:
        ScheduleError: the file cannot be read.
    """
    path = _path(tree, block)
    if path is None or "stages" not in block.given():
        return {}
    try:
        return {"schedule": str(path), "actions": _text(path).replace("\r\n", "\n")}
    except InputError as wrong:
        raise ScheduleError(tree.message(_KEY, str(wrong))) from None


def check_replicas_rows(tree: Tree, plan: Plan) -> None:
    """Refuse such a file where its rows are not those of the plan's replicas and micro-batches.

    Raises:
        ScheduleError: at the place in the scenario, naming the row.
    """
    if plan.stages is None or not plan.from_file or plan.actions is None:
        return
    replicas = StageReplicas(tuple(stage.replicas for stage in plan.stages))
    try:
        replicas.read(plan.actions, plan.num_microbatches, plan.schedule)
    except ScheduleError as wrong:
        raise ScheduleError(tree.message(_KEY, str(wrong))) from None


def _path(tree: Tree, block: PlanBlock) -> Path | None:
    name = block.given().get("schedule", "")
    return tree.folder(_KEY) / name if name.lower().endswith(SUFFIX) else None


def _text(path: Path) -> str:
    return read_text(path, most=MOST_ROWS, near=(SUFFIX,))


def _check_sizes(schedule: Schedule, block: PlanBlock) -> None:
    pp, stages = schedule.pp, schedule.num_stages
    if stages % pp:
        raise ScheduleError(
            f"{schedule.name}: {stages} stages on {pp} ranks; a plan cuts the model into pp x v "
            f"stages, so their number must be a multiple of {pp} (they may be on any rank)"
        )
    given = block.given()
    if given.get("pp", pp) != pp:
        raise ScheduleError(
            f"{schedule.name}: has {pp} rows, one for each pipeline rank, but pp={given['pp']}; "
            f"use pp={pp}, or leave pp out"
        )
    if given.get("v", stages // pp) != stages // pp:
        raise ScheduleError(
            f"{schedule.name}: has {stages} stages on {pp} ranks, but v={given['v']}; "
            f"use v={stages // pp}, or leave v out"
        )
