"""How a stack reduces and shards gradients and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ShardingHabits:
    """How a stack reduces and shards gradients and parameters."""

    # What gradients are accumulated in where the plan does not say: "fp32" or "same".
    gradient_precision: str
    # What they are reduced in where the plan does not say: "fp32" or "same".
    reduce_precision: str
    # What plans in fp16 accumulate and reduce them in instead ("": in the two above).
    fp16_sums: str
    # Whose rule cuts gradients into buckets: "torch" or "megatron" (`cost/data/buckets.py`).
    ddp_buckets: str
    # Parameters of a bucket that replace the rule's (None: the rule's).
    ddp_bucket_parameters: float | None
    # Copies of a bucket that its library makes to reduce and scatter it.
    scatter_copies: float
    # Whether ZeRO-3's gradients add up whole over micro-batches and are reduced with the last one.
    sums_whole: bool
    # Collectives that ZeRO-3 needs for a layer's parameters.
    gathers_per_layer: int
    # Collectives that ZeRO-3 needs for a layer's gradients.
    scatters_per_layer: int
    # Parameters that may be used between two uses of a gathered one before it is let go (None: any
    # number; `gathered_again` of `cost/step/stages.py`).
    reuse_distance: float | None
    # Bytes moved between flat buffer and tensors, per byte of a sharded collective.
    staging: float

    def sums_of(self, precision: str, accumulated: str | None = None) -> Mapping[str, str]:
        """What gradients are accumulated and reduced in where a plan does not say, by field.

        A plan in fp16 that says what they are `accumulated` in, and differs from the habit, has
        them reduced as in bf16.
        """
        if precision == "fp16" and self.fp16_sums and accumulated in (None, self.fp16_sums):
            return {"gradient_precision": self.fp16_sums, "reduce_precision": self.fp16_sums}
        return {
            "gradient_precision": self.gradient_precision,
            "reduce_precision": self.reduce_precision,
        }
