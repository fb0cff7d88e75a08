"""Seconds of a layer's experts: routing, moving tokens to their experts and back, grouped products.

    rank's tokens  -> router -> copies, k a token -> all-to-all -> sorted by expert -> fc1, act, fc2
    rank's tokens <- weighted sum <- copies <- all-to-all <- in the order of their ranks <-'

T tokens of a rank (s b / (cp tp)), k experts a token, E experts on ep ranks, each split over etp.
A rank works on R = T k etp rows, R ep / E of them for each of its E / ep experts, if tokens spread
evenly; the stack's `expert_imbalance` says how many more the busiest rank has, for which all wait.

Source: GShard (arXiv:2006.16668), Megatron-Core's token dispatchers, MegaBlocks (arXiv:2211.15841).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Num
from parsim.cluster.hardware import Device
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import gemm_time, grouped_gemm_time, memory_excess, memory_time
from parsim.cost.kernel.quantized import cast_time, operands
from parsim.cost.layer.dispatch import Routing, copied_tokens, dispatch_time
from parsim.cost.layer.passes import Kernel, Kernels, PassPart
from parsim.model.operators import Experts
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization

ROUTING = 24.0
"""Bytes moved per token and expert in either direction: fp32 logits, probabilities and the map of
chosen experts are each written and read (4 + 4, three times)."""

ROUTER, PREPROCESS, MOVING = (20, 20), (10, 0), (10, 10)
"""Launches of either direction, in the names of CUDA graphs' scopes: the router's product, casts,
scores, choice and losses (moe_router), counts of tokens for each rank and expert (moe_preprocess),
and maps and copies around dispatch and combine, which no partial graph takes.

Source: estimated from Megatron-Core's router and dispatchers; no profile was counted."""

QUANTISED_VALUE = 1.0 + 4.0 / 128.0
"""Bytes of a dispatched value in 8 bit: an fp32 scale for each 128 of them."""

EACH, QUANTISED, BIASED = (2, 4), (2, 2), (3, 6)
"""Launches for each local expert: products, casts of 8-bit ones, the last bias."""

BIAS_FORWARD, BIAS_BACKWARD = 28.0, 40.0
"""Bytes moved per row and width of a token by an expert's last bias, which is weighted with the
row's probability in fp32: product written (4), sum (2 + 4 read, 4 written), concatenation (8) and
cast (6); backward casts (12), both gradients of the product and their sums (24), a copy (4).

Source: Megatron-Core, `TEGroupedMLP._apply_bias`, kernel by kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertCoster:
    """Prices the experts of one layer.

    `tokens` (B,) of a micro-batch are a rank's, `copies` (B,) those of all tensor-parallel ranks,
    once for each expert of a token.
    """

    job: Job
    table: PlanTable
    op: Experts
    tokens: Array
    copies: Array
    how: Quantization | None

    @property
    def rows(self) -> Array:
        """Rows that the busiest rank multiplies."""
        spread = self.job.software.expert_imbalance
        return np.asarray(self.tokens * self.op.top_k * self.table.etp * spread)

    @property
    def _choice(self) -> Routing:
        """How a token's experts are chosen."""
        op = self.op
        return Routing(top_k=op.top_k, groups=op.groups, top_groups=op.top_groups)

    @property
    def local(self) -> Array:
        """Experts on a rank."""
        return np.asarray(self.op.count / self.table.ep)

    def forward(self, crowded: Device) -> Kernels:
        """Kernels of a forward; `crowded` is the device as products see it beside a collective."""
        alone = self._products(self.job.device)
        products = replace(
            self.kernel(PassPart.PRODUCT, alone, 2),
            crowded=alone if crowded is self.job.device else self._products(crowded),
        )
        around = self._launches(0) - products.launches
        return (
            products,
            self.kernel(PassPart.FORWARD, self._routing(), around),
            self.kernel(PassPart.FORWARD, self._moved()),
            self.kernel(PassPart.FORWARD, self.activation(3.0)),
            self.kernel(PassPart.FORWARD, self._biased(BIAS_FORWARD)),
            self.kernel(PassPart.FORWARD, self._casts(1.0)),
        )

    def backward(self) -> Kernels:
        """Kernels of a backward, whose router has two products."""
        return (
            *self._gradients(),
            replace(self.kernel(PassPart.BACKWARD, self._routing()), runs=2.0),
            self.kernel(PassPart.BACKWARD, self._moved()),
            self.kernel(PassPart.BACKWARD, self.activation(5.0)),
            self.kernel(PassPart.BACKWARD, self._biased(BIAS_BACKWARD)),
            self.kernel(PassPart.BACKWARD, self._casts(2.0)),
        )

    def kernel(self, part: PassPart, seconds: Array, launches: Num = 0) -> Kernel:
        """One of the experts' kernels; all of a direction are one kind: no calibration has any."""
        direction = "backward" if part is PassPart.BACKWARD else "forward"
        return Kernel(
            kind=f"experts_{direction}",
            part=part,
            shape=(self.copies, self.op.width, self.op.ffn_hidden_size),
            seconds=seconds,
            launches=launches,
        )

    def _launches(self, direction: int) -> Array:
        """Launches of a direction, in launches of the stack's other kernels."""
        graphs, used = self.job.software.captured, self.job.software
        around = MOVING[direction]
        around += 0 if "moe_router" in graphs else ROUTER[direction]
        around += 0 if "moe_preprocess" in graphs else PREPROCESS[direction]
        each = EACH[direction]
        each += QUANTISED[direction] if self.how is not None else 0
        each += BIASED[direction] if self.op.bias else 0
        longer = used.expert_launch / used.launch_cost if used.launch_cost > 0.0 else 0.0
        return np.asarray((around + each * self.local) * longer)

    def _grouped(self, device: Device, n: Array, k: Array, *, weights: bool = False) -> Array:
        """One product of all local experts."""
        used = self.table.precision
        on, name, value = operands(device, used, self.how)
        kept = self.table.summed_bytes
        if not self.job.software.fused_gradient_accumulation:
            kept = 0.5 * used.activation  # written once, added by a kernel of its own
        return grouped_gemm_time(
            on,
            name,
            experts=self.local,
            tokens=self.rows / self.local,
            n=n,
            k=k,
            weight_gradient=weights,
            value=value,
            gradient_value=kept,
        )

    @property
    def width(self) -> Array:
        """Width of an expert on a rank."""
        return np.asarray(self.op.ffn_hidden_size / self.table.etp)

    def _products(self, device: Device) -> Array:
        h, f = np.asarray(float(self.op.width)), self.width
        first = self._grouped(device, self.op.halves * f, h)
        return first + self._grouped(device, h, f)

    def _gradients(self) -> Kernels:
        """Two products for each of forward's: gradients of the inputs, and of either matrix."""
        h, f = np.asarray(float(self.op.width)), self.width
        halves, device = self.op.halves, self.job.device
        inputs = self._grouped(device, h, halves * f) + self._grouped(device, f, h)
        weights = [
            self.kernel(PassPart.BACKWARD, self._grouped(device, n, k, weights=True))
            for n, k in ((halves * f, h), (h, f))
        ]
        return (
            self.kernel(PassPart.BACKWARD, inputs, self._launches(1)),
            *(replace(gradient, weights=True) for gradient in weights),
        )

    def _biased(self, moved: float) -> Array:
        """Adding the second product's bias, weighted for each row, or taking its gradients.

        The first product adds its own. R h values: 28 bytes forward, 40 backward, 5 kernels.
        """
        if not self.op.bias:
            return np.zeros(len(self.table))
        return self._moving_bytes(moved * self.rows * self.op.width, 5, "expert_bias")

    def _moving_bytes(self, moved: Array, launches: int, kind: str) -> Array:
        """A memory-bound kernel beside the products, which a stack may fuse into them."""
        return memory_time(self.job.device, moved * self._excess, launches, kind)

    @property
    def _excess(self) -> float:
        """How much longer such a kernel takes than its bytes."""
        used = self.job.software
        return used.traffic if used.fused_experts else self._row_excess

    @property
    def _row_excess(self) -> float:
        """How much longer a kernel that gathers rows, or chooses among them, takes than bytes."""
        return memory_excess(self.job.device, self.job.software.row_rate)

    def _routing(self) -> Array:
        """The router's product, softmax, choice, and the map of who goes where.

        T x E x h, and 24 bytes for each of T x E. Backward has two products.
        """
        device, used = self.job.device, self.table.precision
        product = gemm_time(
            device,
            used.compute,
            m=self.tokens,
            n=self.op.count,
            k=self.op.width,
            value=used.activation,
        )
        moved = ROUTING * self.tokens * self.op.count * self._row_excess
        return product + memory_time(device, moved, 4, "routing")

    def _moved(self) -> Array:
        """Copying tokens into the order of ranks, and of experts, and both back, seconds."""
        values = self.op.width * copied_tokens(
            self.job.software.expert_dispatcher,
            self._choice,
            tokens=self.tokens,
            rows=self.rows,
            ranks=np.asarray(self.table.ep, dtype=np.float64),
            local=self.local,
        )
        moved = 2.0 * self.table.precision.activation * values * self._row_excess
        return memory_time(self.job.device, moved, 4, "permute")

    def activation(self, passes: float) -> Array:
        """Gated: reads two halves, writes one; backward reads both and dy, writes both."""
        width = passes if self.op.gated else passes - 1.0
        moved = self.rows * self.width * width * self.table.precision.activation
        return self._moving_bytes(moved, 1, "swiglu")

    def _casts(self, twice: float) -> Array:
        """Quantising both products' inputs forward, both outputs' gradients backward."""
        if self.how is None:
            return np.zeros(len(self.table))
        wide = self.op.halves * self.width if twice > 1.0 else self.width
        values = self.rows * (self.op.width + wide) * self._excess
        return cast_time(self.job, self.how, values)[0]

    def exchanges(self) -> tuple[Array, Array]:
        """Seconds of one dispatch and of one combine, whatever hides them (`LayerCost.hidden`).

        One dispatcher's transfer over ep ranks (`cost/layer/dispatch.py`). With etp > 1
        what arrives is gathered over etp (scattered, on the way back). A stack may quantise what
        it dispatches, a byte a value and 4 for the scale of 128; outputs come back in 16 bit.

        Source: `cost/layer/dispatch.py`; closed forms in `cost/collective/collectives.py`;
        8-bit dispatch: DeepSeek-V3 (arXiv:2412.19437), section 3.3.3.
        Leaves out: that busy ranks receive more. On B200 a recipe of Megatron-Bridge
        (qwen3_30b_a3b, MXFP8, micro-batch 4) says that HybridEP is 29 % of kernel time: transfers
        and permutations are 31 % here.
        """
        back = self._exchange(self.table.precision.activation)
        small = self.job.software.quantized_dispatch and self.how is not None
        return (self._exchange(QUANTISED_VALUE) if small else back), back

    def _exchange(self, value: float) -> Array:
        """Seconds of moving all of a micro-batch's tokens, of values of so many bytes, once."""
        system, op = self.job.system, self.op
        seconds = dispatch_time(
            system,
            self.job.software.expert_dispatcher,
            tokens=self.tokens,
            row=op.width * value,
            routing=self._choice,
            copies=routed_copies(self.job, self.table, op, self.tokens, value),
        )
        # with etp > 1 what has arrived is gathered over the ranks that share an expert
        _, inner = expert_groups(self.job, self.table)
        return seconds + collective_time(system, "all_gather", self.rows * op.width * value, inner)


def routed_copies(
    job: Job, table: PlanTable, op: Experts, tokens: Array, value: float | None = None
) -> Message:
    """A copy of each of a rank's tokens for each of its experts, over expert-parallel ranks.

    `value` is the bytes of one of a token's values, None those of the plan's precision.
    """
    row = op.width * (table.precision.activation if value is None else value)
    where, _ = expert_groups(job, table)
    return Message(kind="all_to_all", axis="ep", size=tokens * op.top_k * row, where=where)


def expert_groups(job: Job, table: PlanTable) -> tuple[Groups, Groups]:
    """(expert-parallel, expert-tensor) groups: neighbours inside a pipeline stage, etp innermost.

    Source: Megatron-Core's order of ranks, tp-ep-dp-pp with the expert degrees in place of tp, cp.
    """
    neighbours, world = np.ones_like(table.ep), table.world_size
    return (
        groups(job.system, size=table.ep, stride=table.etp, world=world),
        groups(job.system, size=table.etp, stride=neighbours, world=world),
    )
