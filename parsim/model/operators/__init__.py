"""What a layer does: sizes enter, operators with exact parameters, traffic and values kept leave.

An operator holds its full, unsharded sizes for one sample and how tensor parallelism splits it; the
cost model applies micro-batch size and degrees later, so that one operator serves thousands of
plans. `tokens` are the rows of a sample that it works on: a sequence's tokens, an image's patches.
"Value" below means one number in the activation precision (2 bytes in bf16), "mask" one byte.

Source of the split and of what is saved for backward: Shoeybi et al. 2019 (arXiv:1909.08053);
Korthikanti et al. 2022 (arXiv:2205.05198), section 4.
"""

from parsim.model.operators.attention import WINDOW_TILE, Attention
from parsim.model.operators.memory_bound import Elementwise, Lookup, Loss
from parsim.model.operators.operator import Operator, forward_flops
from parsim.model.operators.products import Experts, Linear
from parsim.model.operators.splits import Region, Split
from parsim.model.operators.timed import Timed

__all__ = [
    "WINDOW_TILE",
    "Attention",
    "Elementwise",
    "Experts",
    "Linear",
    "Lookup",
    "Loss",
    "Operator",
    "Region",
    "Split",
    "Timed",
    "forward_flops",
]
