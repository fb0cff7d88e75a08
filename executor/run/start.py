"""How every kind of run begins on a rank: its device, the meeting of all ranks, the prediction."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from executor.devices.machine import DeviceReport, rank_device
from executor.devices.process_group import process_group
from executor.faults.reports import HERE, fatal
from executor.run.provenance import provenance
from executor.run.results import predict
from parsim.launch.options import RunOptions
from parsim.scenario import Scenario
from parsim.sim import Prediction


@dataclass(frozen=True, kw_only=True)
class Start:
    """A rank that has met the others; `predicted` is there on rank 0 alone, which writes."""

    scenario: Scenario
    report: DeviceReport
    options: RunOptions
    began: datetime.datetime
    device: torch.device
    rank: int
    predicted: Prediction | None

    def meta(self) -> dict[str, Any]:
        """What rank 0 knows of the run; asked at its end."""
        return provenance(self.scenario, self.report, self.options, self.began)


@contextmanager
def started(scenario: Scenario, report: DeviceReport, options: RunOptions) -> Iterator[Start]:
    """Be a rank of the run: whatever fails inside is reported, and ends this process."""
    device, rank = rank_device(report), int(os.environ["RANK"])
    began = datetime.datetime.now(datetime.UTC)
    with process_group(report.backend, options.timeout, device), fatal(options.out, rank):
        HERE.enter("predict")
        yield Start(
            scenario=scenario,
            report=report,
            options=options,
            began=began,
            device=device,
            rank=rank,
            predicted=predict(scenario, options.out) if rank == 0 else None,
        )
