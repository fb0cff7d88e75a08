"""A whole training run: a predicted step and how long one trains come in, what it takes leaves.

Days, device-hours, dollars and kilowatt-hours, each with its interval, with the time that failures
and checkpoints take (`training_run.py`). What is asked for is here.
"""

from parsim.training_run.failures import Failures, TrainingGoal

__all__ = ["Failures", "TrainingGoal"]
