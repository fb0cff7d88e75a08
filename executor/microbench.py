"""Times single kernels, and two ranks' messages, with torch on this machine.

Every time is the least of repeated runs after a warm-up: on a shared machine it is the one that
can be repeated. Matrices hold normal random values, since their contents change the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from executor.constants import (
    ALL_REDUCE,
    BACKWARD,
    FORWARD,
    GEMM,
    LAUNCH,
    OPTIMIZER,
    SEND_RECV,
    Sample,
)
from parsim.cost.attention import FLASH_BACKWARD
from parsim.errors import InputError
from parsim.model.model import Model
from parsim.model.operators import Attention, Linear, Split
from parsim.plan import Plan

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16,
          "bf16": torch.bfloat16}  # fmt: skip
CLOCK_GRAIN = 200e-6
"""Kernels are repeated within one timing until it lasts this long, seconds."""
ROWS = 768
"""Width of the rows of a layer norm."""


class Case(NamedTuple):
    """One kernel to time: its kind and shape as the cost functions name them, and how to run it.

    `sizes` is what running it needs beyond the shape: batch, heads, head size and whether causal of
    attention, the number of values of a memory-bound kernel.
    """

    kind: str
    shape: Mapping[str, float]
    sizes: tuple[int, ...] = ()


def spread_cases(kind: str) -> Iterator[Case]:
    """Shapes over the range that training on a CPU core or a GPU meets."""
    small = kind == "cpu"
    rows = (64, 256, 1024) if small else (512, 2048, 8192)
    widths = ((64, 64), (256, 256), (768, 768), (768, 3072), (3072, 768)) if small else (
        (1024, 1024), (2048, 2048), (4096, 4096), (4096, 14336), (14336, 4096))  # fmt: skip
    for m in rows:
        for n, k in widths:
            yield Case(GEMM, {"m": m, "n": n, "k": k})
    for n, k in widths:  # the shape of a weight gradient
        yield Case(GEMM, {"m": k, "n": n, "k": rows[1]})
    lengths = (128, 256, 512, 1024) if small else (512, 1024, 2048, 4096)
    batch, heads, size = (1, 12, 64) if small else (2, 16, 128)
    for length in lengths:
        yield from attention_cases(batch, heads, length, size, causal=True)
    yield from memory_cases(small)


def memory_cases(small: bool) -> Iterator[Case]:
    """Memory-bound kernels by size, a launch, and optimizer steps."""
    for rows in (16, 256, 1024, 4096) if small else (512, 8192, 65536, 262144):
        for name in ("copy", "add", "layer_norm", "gelu"):
            yield Case(name, {}, (rows * ROWS,))
    yield Case(LAUNCH, {}, (1,))
    for values in (2**18, 2**22) if small else (2**22, 2**26):
        yield Case(OPTIMIZER, {"parameters": values})


def attention_cases(
    batch: int, heads: int, length: int, size: int, *, causal: bool
) -> Iterator[Case]:
    """Forward and backward of one fused attention, with the FLOPs that are really executed."""
    flops = 4.0 * batch * length**2 * heads * size * (0.5 if causal else 1.0)
    for kind, factor in ((FORWARD, 1.0), (BACKWARD, FLASH_BACKWARD)):
        shape = {"flops": factor * flops, "seq_len": length}
        yield Case(kind, shape, (batch, heads, size, int(causal)))


def plan_cases(model: Model, plan: Plan) -> Iterator[Case]:
    """The GEMMs and the attention of a plan, each distinct shape once."""
    layers = (model.embedding, *model.layers, model.head)
    found: dict[tuple[int, int, int], None] = {}
    fused: dict[Attention, None] = {}
    tokens = plan.microbatch_size * model.seq_len // plan.cp
    for op in (op for layer in layers for op in layer.operators):
        if isinstance(op, Linear):
            m = plan.microbatch_size if op.per_sequence else tokens
            n = op.outputs // (plan.tp if op.split is Split.COLUMN else 1)
            k = op.inputs // (plan.tp if op.split is Split.ROW else 1)
            found |= dict.fromkeys([(m, n, k), (m, k, n), (k, n, m)])
        elif isinstance(op, Attention) and op.fused:
            fused[op] = None
    for m, n, k in found:
        yield Case(GEMM, {"m": m, "n": n, "k": k})
    for core in fused:
        heads, size = core.heads // plan.tp, core.head_dim
        batch, length = plan.microbatch_size, model.seq_len
        yield from attention_cases(batch, heads, length, size, causal=core.causal)


class Bench:
    """Times cases on one device in one precision."""

    def __init__(self, device: torch.device, precision: str) -> None:
        if precision not in DTYPES:
            raise InputError(
                f"precision {precision} cannot be calibrated; allowed: {', '.join(DTYPES)}"
            )
        self.device = device
        self.dtype = DTYPES[precision]
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        self._ballast = self._normal(4096, 4096) if device.type == "cuda" else None

    def sample(self, case: Case, seconds: float) -> Sample:
        """The least time of a case within about so many seconds."""
        work = self._work(case)
        shape = case.shape or {"bytes": float(self._moved(case))}
        return Sample(kind=case.kind, shape=shape, seconds=self.least(work, seconds))

    def least(self, work: Callable[[], object], seconds: float) -> float:
        """Least seconds of one call: two warm-up calls, then 3 to 50 timings."""
        work()
        once = max(self._elapsed(work, 1), 1e-7)
        inner = min(max(math.ceil(CLOCK_GRAIN / once), 1), 100)
        repeats = min(max(int(seconds / (once * inner)), 3), 50)
        return min(self._elapsed(work, inner) for _ in range(repeats))

    def _elapsed(self, work: Callable[[], object], inner: int) -> float:
        if self._ballast is None:
            began = time.perf_counter()
            for _ in range(inner):
                work()
            return (time.perf_counter() - began) / inner
        return self._between_events(work, inner)

    def _between_events(self, work: Callable[[], object], inner: int) -> float:
        """Device seconds: some milliseconds of products let the host queue the kernels ahead."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        for _ in range(10):
            torch.mm(self._ballast, self._ballast)
        start.record()
        for _ in range(inner):
            work()
        end.record()
        torch.cuda.synchronize(self.device)
        return float(start.elapsed_time(end)) * 1e-3 / inner

    def _normal(self, *sizes: int) -> Tensor:
        return torch.randn(*sizes, device=self.device).to(self.dtype)

    def _moved(self, case: Case) -> int:
        """Bytes that a memory-bound kernel reads and writes: each value once."""
        values = 3 if case.kind in ("add", LAUNCH) else 2
        return values * case.sizes[0] * int(self.dtype.itemsize)

    def _work(self, case: Case) -> Callable[[], object]:
        if case.kind == GEMM:
            m, n, k = (int(case.shape[name]) for name in "mnk")
            a, b = self._normal(m, k), self._normal(n, k).t()
            return lambda: torch.mm(a, b)
        if case.kind in (FORWARD, BACKWARD):
            return self._attention(case)
        if case.kind == OPTIMIZER:
            return self._optimizer(int(case.shape["parameters"]))
        return self._memory(case.kind, case.sizes[0])

    def _attention(self, case: Case) -> Callable[[], object]:
        batch, heads, size, causal = case.sizes
        shape = (batch, heads, int(case.shape["seq_len"]), size)
        q, k, v, grad = (self._normal(*shape) for _ in range(4))
        if case.kind == FORWARD:
            return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
        return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)

    def _optimizer(self, parameters: int) -> Callable[[], object]:
        values = torch.randn(parameters, device=self.device, requires_grad=True)
        values.grad = torch.randn(parameters, device=self.device)
        return torch.optim.AdamW([values], lr=1e-5).step  # type: ignore[no-any-return]

    def _memory(self, kind: str, values: int) -> Callable[[], object]:
        x = self._normal(values)
        y = torch.empty_like(x)
        if kind == "copy":
            return lambda: y.copy_(x)
        if kind in ("add", LAUNCH):
            other = self._normal(values)
            return lambda: torch.add(x, other, out=y)
        if kind == "gelu":
            return lambda: F.gelu(x)
        rows = x.view(-1, ROWS)
        return lambda: F.layer_norm(rows, (ROWS,))

    def link(self, kind: str, size: int, seconds: float) -> Sample:
        """The least time of an all-reduce or a message between two ranks; called on both."""
        data = torch.zeros(size // 4, device=self.device)
        work = _all_reduce(data) if kind == ALL_REDUCE else _round_trip(data)
        work()
        once = torch.tensor(self._elapsed(work, 1), dtype=torch.float64, device=self.device)
        dist.broadcast(once, 0)  # both ranks must agree on the number of repeats
        repeats = min(max(int(seconds / max(float(once), 1e-6)), 3), 200)
        least = min(self._together(work) for _ in range(repeats))
        halves = 2.0 if kind == SEND_RECV else 1.0
        return Sample(kind=kind, shape={"bytes": float(size)}, seconds=least / halves)

    def _together(self, work: Callable[[], object]) -> float:
        dist.barrier()
        return self._elapsed(work, 1)


def _all_reduce(data: Tensor) -> Callable[[], object]:
    return lambda: dist.all_reduce(data)


def _round_trip(data: Tensor) -> Callable[[], object]:
    """Rank 0 sends and gets back; rank 1 mirrors it. Two messages."""

    def work() -> None:
        if dist.get_rank() == 0:
            dist.send(data, 1)
            dist.recv(data, 1)
        else:
            dist.recv(data, 0)
            dist.send(data, 0)

    return work
