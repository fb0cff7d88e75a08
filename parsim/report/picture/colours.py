"""What each kind of span looks like: one fixed palette that colour-blind readers can tell apart.

The hues are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), but for exchanges between
tensor ranks: their yellow is too faint for thin boxes, so these are the wine of Paul Tol's muted
scheme (https://sronpersonalpages.nl/~pault/), darker than all others. Colour has no standard in
this field (blue is F in PyTorch's schedule drawer, W in DualPipe's figure), so every picture has
a legend and no meaning rests on hue alone: I is hatched, chunks differ in lightness.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from parsim.timelines.kinds import SpanKind, Stream

RGB = tuple[float, float, float]


class Look(NamedTuple):
    """Legend text, colour and hatch of one kind of span."""

    label: str
    colour: str
    hatch: str = ""


TRANSFER: Final = Look("send / receive", "#56B4E9")
COLLECTIVE: Final = Look("data-parallel collective", "#D55E00")
EXCHANGE: Final = Look("exchange of activations", "#882255")
ALL_TO_ALL: Final = Look("experts' all-to-all", "#AA8800")
COPY: Final = Look("activations moved away or back", "#117733")

LOOKS: Final = {
    SpanKind.F: Look("F  forward", "#0072B2"),
    SpanKind.B: Look("B  backward", "#009E73"),
    SpanKind.I: Look("I  backward for inputs", "#009E73", "////"),
    SpanKind.W: Look("W  backward for weights", "#CC79A7"),
    SpanKind.OPTIMIZER: Look("optimizer", "#E69F00"),
    SpanKind.GRAD_NORM: Look("gradient norm", "#8C8C8C"),
    SpanKind.STRAGGLER: Look("straggler allowance", "#CDCDCD", "...."),
    SpanKind.SEND_F: TRANSFER,
    SpanKind.RECV_F: TRANSFER,
    SpanKind.SEND_B: TRANSFER,
    SpanKind.RECV_B: TRANSFER,
    SpanKind.EXCHANGE: EXCHANGE,
    SpanKind.ALL_TO_ALL: ALL_TO_ALL,
    SpanKind.OFFLOAD: COPY,
    SpanKind.RELOAD: COPY,
    SpanKind.SHARD: COLLECTIVE,
    SpanKind.UNSHARD: COLLECTIVE,
    SpanKind.RESHARD: COLLECTIVE,
    SpanKind.REDUCE_GRAD: COLLECTIVE,
    SpanKind.REDUCE_TIED: COLLECTIVE,
    SpanKind.GATHER_PARAM: COLLECTIVE,
    SpanKind.PUSH: Look("gradients to servers", "#56B4E9"),
    SpanKind.PULL: Look("weights from servers", "#882255"),
    SpanKind.SCATTER: Look("samples scattered", "#56B4E9"),
    SpanKind.REPLICATE: Look("weights replicated", "#882255"),
    SpanKind.GATHER_OUTPUT: Look("outputs gathered", "#AA8800"),
    SpanKind.AVERAGE: Look("weights averaged", "#D55E00"),
    SpanKind.COMPRESS: Look("gradients packed", "#6A3D9A"),
    SpanKind.LOSS: Look("loss of the whole batch", "#000000"),
}
"""Looks by kind, in the order of the legend."""

CHUNKED: Final = (SpanKind.F, SpanKind.B, SpanKind.I, SpanKind.W)
"""Kinds whose lightness says which chunk of the rank they work on."""

_OF_STRATEGIES: Final = {
    *(SpanKind.PUSH, SpanKind.PULL, SpanKind.AVERAGE, SpanKind.OPTIMIZER),
    *(SpanKind.SCATTER, SpanKind.REPLICATE, SpanKind.GATHER_OUTPUT),
}
"""Kinds that look alike on every stream: what strategies send, and updates that servers make."""

EXPOSED: Final = "#D55E00"
EXPOSED_FILL: Final = "#FBE6D8"
IDLE: Final = "#E8E8E8"
QUIET_LANE: Final = "#F5F5F5"
PATH: Final = "#000000"
CAPACITY: Final = "#B00020"
PARTS: Final = {
    "parameters": "#6A3D9A",
    "gradients": "#9E77C6",
    "optimizer": "#CDB7E2",
    "activations": "#0072B2",
    "old weights": "#009E73",
    "buffers": "#E69F00",
}
"""Fills of the parts of a memory curve, from the bottom up."""

_STREAM_LOOKS: Final = {
    Stream.SEND: TRANSFER,
    Stream.RECV: TRANSFER,
    Stream.TP: EXCHANGE,
    Stream.EP: ALL_TO_ALL,
    Stream.DP: COLLECTIVE,
    Stream.OFFLOAD: COPY,
}
_LIGHTEST: Final = 0.5


@cache
def look_of(kind: str, stream: str) -> Look:
    """Look of a span; one of unknown kind looks like its stream, or grey under its own name."""
    if kind in _OF_STRATEGIES:
        return LOOKS[kind]
    if stream in _STREAM_LOOKS:
        return _STREAM_LOOKS[stream]
    return LOOKS.get(kind, Look(kind, "#BBBBBB"))


def rgb(colour: str) -> RGB:
    """Red, green and blue in 0..1 of a colour such as `#0072B2`."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


@cache
def shade(colour: str, chunk: int, chunks: int) -> RGB:
    """The colour mixed with white: full for the first chunk of a rank, lightest for the last."""
    white = _LIGHTEST * chunk / max(chunks - 1, 1)
    red, green, blue = (part + (1 - part) * white for part in rgb(colour))
    return red, green, blue


def ink(background: RGB) -> str:
    """Black or white, whichever has more contrast on the background.

    Weights are those of Rec. 709 luma; 0.5 separates the palette's dark from its light fills.
    """
    red, green, blue = background
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5 else "black"
