"""A schedule of the user's own: the CSV file that `plan.schedule` names.

Its path is relative to the scenario's file, or with `--set` to the working directory. The file
says on which rank each stage is and how many micro-batches there are, so that pp and v follow.
"""

from __future__ import annotations

from parsim.errors import DeadlockError, InputError, ScheduleError
from parsim.files import MOST_ROWS, read_text
from parsim.scenario.positions import Tree
from parsim.scenario.schema.plan import PlanBlock
from parsim.schedule import Schedule, parse_user_schedule

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
    name = block.given().get("schedule", "")
    if not name.lower().endswith(SUFFIX):
        return None
    path = tree.folder(_KEY) / name
    try:
        schedule = parse_user_schedule(str(path), read_text(path, most=MOST_ROWS, near=(SUFFIX,)))
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
