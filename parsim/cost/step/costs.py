"""The record of a step's costs: the border between what prices steps and what simulates them."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.arrays import Array, Columns
from parsim.cost.data.static_bytes import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts(Columns):
    """Seconds for B plans of S stages on p pipeline ranks.

    `forward`, `backward` (S, B) are whole actions; the `exposed_` and `recomputed` parts are
    inside them. `hop` (S, B) is the time of the message between stage s and s + 1 (last row 0).
    `buckets` and `bucket_time` (S, B) describe the reduction after a stage's last backward, the
    sums of copied heads' gradients ahead of it among it.
    `tied`, `norm` (B,), `optimizer` and `gather` (p, B) follow. `late` (B,) is what the last
    backwards lose to the reduction beside them. `straggler` (B,) is the share by which the whole
    step grows. `parameters` (S, B) counts local parameters of one rank, `experts` (S, B) those of
    them that are experts' (None: none), `trained` and `trained_experts` those of either that have
    gradients, `originals` those that stay beside trained copies (None: none do).
    `copied_forward` and `copied_backward` (S, B) are the parts of the exposed seconds
    in which copies to the host and back show (None: nothing is moved there).
    `copies` (p, B) is the exchange of a rank's gradients with the rank that holds the other copy of
    its stages (None: there is one copy). `host_copies` (p, B) are the part of `optimizer` in which
    gradients and parameters are on their way between device and host (None: updated on devices).
    """

    forward: Array
    backward: Array
    exposed_forward: Array
    exposed_backward: Array
    recomputed: Array
    hop: Array
    buckets: Array
    bucket_time: Array
    tied: Array
    norm: Array
    optimizer: Array
    gather: Array
    late: Array
    straggler: Array
    parameters: Array
    trained: Array
    blocking_p2p: bool
    overlap_reduce: bool
    experts: Array | None = None
    trained_experts: Array | None = None
    originals: Array | None = None
    copied_forward: Array | None = None
    copied_backward: Array | None = None
    copies: Array | None = None
    host_copies: Array | None = None

    @property
    def num_plans(self) -> int:
        """How many plans there are, B."""
        return int(self.forward.shape[1])

    @property
    def weights(self) -> Weights:
        """All parameters of each stage on one rank."""
        return Weights(self.parameters, self.experts)

    @property
    def updated(self) -> Weights:
        """Parameters that have gradients, of each stage on one rank."""
        return Weights(self.trained, self.trained_experts)
