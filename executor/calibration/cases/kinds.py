"""Kinds of what is timed, as the cost functions name them: kernels, collectives and messages."""

GEMM, FORWARD, BACKWARD = "gemm", "attention_forward", "attention_backward"
LAUNCH, OPTIMIZER, ACCUMULATE, COPY = "launch", "optimizer", "accumulate", "copy"
LOSS = ("loss_forward", "loss_backward")

ALL_REDUCE, ALL_GATHER = "all_reduce", "all_gather"
REDUCE_SCATTER, ALL_TO_ALL = "reduce_scatter", "all_to_all"
SEND_RECV = "send_recv"
LINKS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV)
"""Collectives have bytes and ranks, messages bytes."""
