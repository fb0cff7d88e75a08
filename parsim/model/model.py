"""A model: an embedding, layers that a pipeline may cut between, and a head."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.model.operators import Attention, Experts, Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the cost model needs to know of a network.

    `layers` are the cuttable blocks in order; equal layers are the same object, which is how the
    cost model prices each kind once. The embedding belongs to the first stage, the head (final
    norm, logits, loss) to the last. `tied_embeddings` means the head reuses the embedding's
    table, so that with more than one stage both ends hold a copy and all-reduce its gradient.
    """

    name: str
    seq_len: int
    vocab_size: int
    hidden_size: int
    embedding: Layer
    layers: tuple[Layer, ...]
    head: Layer
    tied_embeddings: bool

    @property
    def num_layers(self) -> int:
        """Number of cuttable layers."""
        return len(self.layers)

    @property
    def kinds(self) -> tuple[Layer, ...]:
        """Distinct layer objects in order of first appearance."""
        return tuple({id(layer): layer for layer in self.layers}.values())

    @property
    def parameters(self) -> int:
        """All parameters, the tied table counted once."""
        return (
            self.embedding.parameters
            + sum(layer.parameters for layer in self.layers)
            + self.head.parameters
        )

    @property
    def experts(self) -> Experts | None:
        """The first layer's experts, of the layers that have any."""
        return next((layer.experts for layer in self.kinds if layer.experts is not None), None)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets: of the experts only those that the router picks."""
        idle = sum(
            (op.count - op.top_k) * op.one_expert
            for op in (layer.experts for layer in self.layers)
            if op is not None
        )
        return self.parameters - idle

    @property
    def attention(self) -> Attention | None:
        """The first attention operator, whose heads tensor parallelism must divide."""
        for layer in self.layers:
            for op in layer.operators:
                if isinstance(op, Attention):
                    return op
        return None

    def forward_flops(self, batch: int) -> int:
        """Model FLOPs of a forward pass over `batch` sequences of `seq_len` tokens."""
        parts = (self.embedding, *self.layers, self.head)
        return sum(part.forward_flops(batch, self.seq_len) for part in parts)

    def step_flops(self, batch: int) -> int:
        """Model FLOPs of a training step: backward is twice forward, recomputation not counted.

        Equals 72 B L s h^2 (1 + s/(6h) + V/(12 h L)) for a GPT (Korthikanti et al. 2022).
        """
        return 3 * self.forward_flops(batch)
