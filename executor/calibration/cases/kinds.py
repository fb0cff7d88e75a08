"""Kinds of what is timed, as the cost functions name them: kernels, collectives and messages."""

from parsim.cost.data import update

GEMM, FORWARD, BACKWARD = "gemm", "attention_forward", "attention_backward"
OUTPUT, INPUT_GRADIENT, WEIGHT_GRADIENT = 0, 1, 2
"""Which of a linear map's three products a GEMM is: they have their operands in other layouts."""
LAUNCH, ACCUMULATE, COPY = "launch", "accumulate", "copy"
NORM, CLIP, OPTIMIZER = update.NORM, update.CLIP, update.OPTIMIZER
UPDATES = (NORM, CLIP, OPTIMIZER)
"""What a step does once with the values of all gradients, in this order."""
CONV_FORWARD, CONV_DATA, CONV_WEIGHT = "conv_forward", "conv_data", "conv_weight"
CONVOLUTIONS = (CONV_FORWARD, CONV_DATA, CONV_WEIGHT)
CONVOLUTION_SIZES = (
    *("images", "channels", "outputs", "groups", "window_rows", "window_columns"),
    *("stride_rows", "stride_columns", "rows_in", "columns_in", "rows_out", "columns_out"),
)
"""What a convolution's case has beside the sides of its product."""
PASSES = ("batchnorm", "relu", "add", "maxpool", "avgpool")
"""Operators of networks of images that pass over tensors."""
BESIDE = frozenset(("launches", *CONVOLUTION_SIZES))
"""Numbers of a shape that are no coordinates of its residuals."""
LOSS = ("loss_forward", "loss_backward")
BEHIND = {LOSS[1]: LOSS[0], CLIP: NORM}
"""Kinds that are timed behind the one that a step runs right before them, and less its time."""

ALL_REDUCE, ALL_GATHER = "all_reduce", "all_gather"
REDUCE_SCATTER, ALL_TO_ALL = "reduce_scatter", "all_to_all"
SEND_RECV = "send_recv"
LINKS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV)
"""Collectives have bytes and ranks, messages bytes."""
