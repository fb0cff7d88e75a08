"""A rank of a run whose learning rate is far too high."""

from __future__ import annotations

import executor.train
from executor.__main__ import main
from executor.faults import finish
from executor.optimizer import OptimizerConfig

executor.train.OptimizerConfig = lambda: OptimizerConfig(learning_rate=1e30)  # type: ignore[assignment,misc]

if __name__ == "__main__":
    finish(main())
