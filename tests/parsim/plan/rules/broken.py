"""Plans on a cluster that is large enough for them."""

from __future__ import annotations

from parsim.plan import Plan

LEGAL = Plan(tp=4, pp=2, dp_replicate=2, num_microbatches=4, sequence_parallel=True)
