"""Names of kinds of measured layers: which layer, how it was split, which direction."""

from __future__ import annotations

import re

SPLIT, SEQUENCE = "split_", "sequence_"
"""What the kinds of measured layers of tensor-parallel plans begin with."""
CONTEXT, DISPATCHED = "context_", "dispatched_"
"""What stands before it, where context ranks share a block's sequences; and before that, where
ranks share its experts, to which tokens are dispatched."""
WAITED = "_waited"
"""What stands behind a part whose points say how much of what is modelled as exposed it waits."""
OF_MAKE_UP = "-"
"""What stands between a layer's name and its make-up (`Layer.make_up`) in kinds of such layers
alone: `block-norm2-linear4-attention-gelu-residual2_forward`."""
_WHOLE = re.compile(
    rf"({DISPATCHED})?({CONTEXT})?({SPLIT}|{SEQUENCE})?"
    rf"(block|expert_block|embedding|head|sharded)({OF_MAKE_UP}[a-z0-9_-]+?)?"
    rf"({WAITED})?_(forward|backward)"
)


def is_layer_kind(kind: str) -> bool:
    """Whether points of this kind are of whole layers, or of what sharding adds to them.

    Their one coordinate is modelled seconds, that of kernels is bytes (see
    `parsim.cost.layer.layers.measured_kind`).
    """
    return _WHOLE.fullmatch(kind) is not None
