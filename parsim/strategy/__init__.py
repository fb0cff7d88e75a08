"""What one step does beside and after its pipeline, as data.

Schedules and the choices of a plan come in, a `StepProgram` leaves: tasks in issue order, what each
waits for, who meets in it, and the names of its prices, never seconds. A strategy is one file with
a function that writes such a program, and one entry in `STRATEGIES`; the recurrence, the events,
the memory count and the drawing know kinds of task and no strategy.
"""

from __future__ import annotations

from parsim.strategy.catalog import STRATEGIES, Described
from parsim.strategy.program import StepProgram
from parsim.strategy.synchronous import synchronous
from parsim.strategy.task import Meeting, Task, Waits

__all__ = ["STRATEGIES", "Described", "Meeting", "StepProgram", "Task", "Waits", "synchronous"]
