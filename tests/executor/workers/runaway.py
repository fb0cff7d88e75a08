"""A rank of a run whose learning rate is far too high."""

from __future__ import annotations

from functools import partial

import executor.training.trainer
from executor.faults.reports import finish
from executor.run.command import main
from executor.training.optimizer import OptimizerConfig

vars(executor.training.trainer)["OptimizerConfig"] = partial(OptimizerConfig, learning_rate=1e30)

if __name__ == "__main__":
    finish(main())
