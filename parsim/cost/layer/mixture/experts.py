"""Seconds of experts' kernels on a rank: routing, copies, grouped products, activation, casts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Num
from parsim.cluster.hardware import Device
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import gemm_time, memory_excess, memory_time
from parsim.cost.kernel.quantized import cast_time
from parsim.cost.layer.kept.recomputed_modules import WHOLE
from parsim.cost.layer.mixture.dispatch import Routing, copied_tokens
from parsim.cost.layer.mixture.launches import expert_launches
from parsim.cost.layer.mixture.products import ExpertProducts, expert_width
from parsim.cost.layer.operator_parts import Kernel, Kernels, PassPart
from parsim.model.operators import Experts
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization

ROUTING = 24.0
"""Bytes moved per token and expert in either direction: fp32 logits, probabilities and the map of
chosen experts are each written and read (4 + 4, three times)."""

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

    @classmethod
    def of(cls, job: Job, table: PlanTable, op: Experts, how: Quantization | None) -> ExpertCoster:
        """Take the tokens of a micro-batch on each rank."""
        tokens = table.on_rank(op.tokens)
        shared = tokens / table.sequence_split
        copies = tokens * op.top_k
        return cls(job=job, table=table, op=op, tokens=shared, copies=copies, how=how)

    @property
    def rows(self) -> Array:
        """Rows that the busiest rank multiplies."""
        spread = self.job.software.expert_imbalance
        return np.asarray(self.tokens * self.op.top_k * self.table.etp * spread)

    @property
    def routing(self) -> Routing:
        """How a token's experts are chosen."""
        op = self.op
        dealt = op.count if self.job.software.expert_choice == "consecutive" else 0
        return Routing(top_k=op.top_k, groups=op.groups, top_groups=op.top_groups, dealt=dealt)

    @property
    def local(self) -> Array:
        """Experts on a rank."""
        return np.asarray(self.op.count / self.table.ep)

    def forward(self, crowded: Device) -> Kernels:
        """Kernels of a forward; `crowded` is the device as products see it beside a collective."""
        of_all = self.products
        alone = of_all.forward(self.job.device)
        products = replace(
            self.kernel(PassPart.PRODUCT, alone, 2),
            crowded=alone if crowded is self.job.device else of_all.forward(crowded),
        )
        around = self._launches(0) - products.launches
        return (
            products,
            self.kernel(PassPart.FORWARD, self._routing(), around),
            *self._beside(PassPart.FORWARD, 3.0, BIAS_FORWARD, 1.0),
        )

    def backward(self) -> Kernels:
        """Kernels of a backward, whose router has two products."""
        return (
            *self._gradients(),
            replace(self.kernel(PassPart.BACKWARD, self._routing()), runs=2.0),
            *self._beside(PassPart.BACKWARD, 5.0, BIAS_BACKWARD, 2.0),
        )

    def _beside(self, part: PassPart, passes: float, bias: float, twice: float) -> Kernels:
        """Copies of tokens, the activation, biases and casts of a direction."""
        seconds = self._moved(), self._between(passes), self._biased(bias), self._casts(twice)
        return tuple(self.kernel(part, each) for each in seconds)

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
        used, quantised = self.job.software, self.how is not None
        whole = WHOLE in used.captured
        hidden = (self.table.ep > 1) & (used.expert_hidden(self.job.device.id) > 0.0) & (not whole)
        return expert_launches(
            used, self.op, self.local, direction, quantised=quantised, hidden=hidden
        )

    @property
    def products(self) -> ExpertProducts:
        """The grouped products of the rank's experts."""
        return ExpertProducts(
            job=self.job,
            table=self.table,
            op=self.op,
            how=self.how,
            rows=self.rows,
            local=self.local,
        )

    @property
    def width(self) -> Array:
        """Width of an expert on a rank."""
        return expert_width(self.op, self.table)

    def _gradients(self) -> Kernels:
        """Two products for each of forward's: gradients of the inputs, and of either matrix.

        Frozen ones have none of the matrices'.
        """
        products, device = self.products, self.job.device
        inputs = products.input_gradients(device)
        weights = products.weight_gradients(device) if self.op.trained else iter(())
        gradients = (self.kernel(PassPart.BACKWARD, each) for each in weights)
        return (
            self.kernel(PassPart.BACKWARD, inputs, self._launches(1)),
            *(replace(gradient, weights=True) for gradient in gradients),
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
            self.routing,
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

    @property
    def in_products(self) -> bool:
        """Whether quantised products end with the activation and with the casts behind it.

        Source: Transformer Engine 2.14 and later, ops/fused/forward_grouped_mlp.py and
        backward_grouped_mlp.py: the kernel of the first product also writes the second one's input
        quantised, in both orientations, that of the second one's input gradient the gradient before
        the activation. What enters from outside is quantised apart.
        Leaves out: that these kernels add biases too, which are priced apart here.
        """
        return self.job.software.fused_experts and self.how is not None

    def _between(self, passes: float) -> Array:
        """The activation between both products, nothing where a product's kernel has it."""
        return np.zeros(len(self.table)) if self.in_products else self.activation(passes)

    def _casts(self, twice: float) -> Array:
        """Quantising both products' inputs forward, both outputs' gradients backward."""
        if self.how is None:
            return np.zeros(len(self.table))
        inner = self.op.halves * self.width if twice > 1.0 else self.width
        wide = self.op.width + (0.0 if self.in_products else inner)
        values = self.rows * wide * self._excess
        return cast_time(self.job, self.how, values, trained=self.op.trained)[0]
