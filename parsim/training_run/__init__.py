"""A whole training run: a predicted step and how long one trains come in, what it takes leaves.

Days, device-hours, dollars and kilowatt-hours, each with its interval, with the time that failures
and checkpoints take.
"""

from parsim.training_run.failures import Failures
from parsim.training_run.goal import TrainingGoal
from parsim.training_run.training_run import TrainingRun, predicted_run, training_run

__all__ = ["Failures", "TrainingGoal", "TrainingRun", "predicted_run", "training_run"]
