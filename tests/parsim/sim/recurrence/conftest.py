"""Fixtures of this folder."""

from __future__ import annotations

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from tests.parsim.sim.mixed_clusters import (
    cluster_of,
    fast_and_slow,
    job_on,
    node,
)


@pytest.fixture(scope="module")
def job() -> Job:
    return job_on(fast_and_slow())


@pytest.fixture(scope="module")
def alike() -> tuple[Job, Job]:
    """Equal nodes, as one kind and as two groups."""
    system = node("dgx-h100")
    return (
        job_on(Cluster(system=system, num_nodes=4)),
        job_on(cluster_of(a=(system, 3), b=(system, 1))),
    )
