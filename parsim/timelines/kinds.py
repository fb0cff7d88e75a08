"""Names of streams and of kinds of spans, spelt once for simulator, executor and reports.

They are plain strings, for they are written into files. Kinds that a schedule has too are spelt as
`parsim.schedule.Kind` names them.
"""

from __future__ import annotations

from typing import Final


class Stream:
    """The lanes of a rank, each of which does one thing at a time."""

    COMPUTE: Final = "compute"
    SEND: Final = "send"  # messages to other stages
    RECV: Final = "recv"
    TP: Final = "tp"  # exchanges of tensor ranks, and of context ranks
    EP: Final = "ep"  # tokens to experts and back
    DP: Final = "dp"  # gradients and parameters
    OFFLOAD: Final = "offload"  # activations to the host or a partner and back


class SpanKind:
    """What a span is."""

    F: Final = "F"  # forward
    B: Final = "B"  # backward
    I: Final = "I"  # noqa: E741  backward for inputs (PyTorch's name)
    W: Final = "W"  # backward for weights
    SEND_F: Final = "SEND_F"
    RECV_F: Final = "RECV_F"
    SEND_B: Final = "SEND_B"
    RECV_B: Final = "RECV_B"
    UNSHARD: Final = "UNSHARD"  # sharded parameters gathered for use
    RESHARD: Final = "RESHARD"
    REDUCE_GRAD: Final = "REDUCE_GRAD"
    REDUCE_TIED: Final = "REDUCE_TIED"  # gradients of the two copies of a table or model
    GRAD_NORM: Final = "GRAD_NORM"  # the norm of all gradients, and the wait for it
    OPTIMIZER: Final = "OPTIMIZER"
    GATHER_PARAM: Final = "GATHER_PARAM"  # shares of updated parameters
    STRAGGLER: Final = "STRAGGLER"  # the wait for the slowest replica
    EXCHANGE: Final = "EXCHANGE"  # inside actions: tensor or context ranks' activations
    ALL_TO_ALL: Final = "ALL_TO_ALL"  # inside actions: tokens to experts and back
    OFFLOAD: Final = "OFFLOAD"  # activations to the host's memory or another rank's
    RELOAD: Final = "RELOAD"  # activations from there
    COMPRESS: Final = "COMPRESS"  # gradients packed into fewer bytes before they are sent
    PUSH: Final = "PUSH"  # gradients to a parameter server
    PULL: Final = "PULL"  # weights from a parameter server
    AVERAGE: Final = "AVERAGE"  # weights with other workers' weights
    SCATTER: Final = "SCATTER"  # samples from device 0 to the others
    REPLICATE: Final = "REPLICATE"  # weights from device 0 to the others
    GATHER_OUTPUT: Final = "GATHER_OUTPUT"  # outputs of all devices to device 0
    LOSS: Final = "LOSS"  # the loss of the whole batch on device 0
    SHARD: Final = "SHARD"  # inside actions: sharded parameters and gradients
