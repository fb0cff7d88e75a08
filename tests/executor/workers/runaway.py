"""A rank of a run whose learning rate is far too high."""

from __future__ import annotations

from functools import partial

import executor.train
from executor.__main__ import main
from executor.faults import finish
from executor.optimizer import OptimizerConfig

vars(executor.train)["OptimizerConfig"] = partial(OptimizerConfig, learning_rate=1e30)

if __name__ == "__main__":
    finish(main())
