"""Where things lie in the picture of a timeline: rows, lanes and the time axis.

A rank is a row of height 1, a stream is a lane in it, and a span is a box in its lane. Time is in
the unit that suits the picture's length. What draws the boxes is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from parsim.report.picture import colours
from parsim.report.picture.colours import RGB, Look
from parsim.timelines.kinds import Stream
from parsim.timelines.timeline import Span

DPI: Final = 120
"""Pixels an inch."""

POINTS: Final = 9.0
"""Size of the picture's text."""

_LABEL_PX: Final = 12.0  # narrower boxes hold no readable digit
_LABEL_POINTS: Final = 5.5
_SMALLER: Final = 0.7  # of a label, where the whole one has no room
_LABEL_ROOM: Final = 3.0  # pixels beside a label, without which two boxes' numbers read as one
_LEADING: Final = 1.15  # height of a line of text, in its points
DENSE_RANKS: Final = 64
"""Rows of more ranks are too thin for a number."""

Measure = Callable[[str, float], float]
"""Width of a text of so many points, in pixels."""

Edges = tuple[float, float, float, float]
"""Left, right, top and bottom of a rectangle in the axes' units."""


class Box(NamedTuple):
    """A span and its rectangle in the axes' units; from `tail` on it waits for communication."""

    span: Span
    left: float
    right: float
    top: float
    bottom: float
    tail: float
    fill: RGB

    @property
    def waits(self) -> bool:
        """Whether its tail is communication that compute waits for."""
        return self.tail < self.right

    @property
    def look(self) -> Look:
        """Colour, hatch and legend text of the span."""
        return colours.look_of(self.span.kind, self.span.stream)


class Label(NamedTuple):
    """A number in a box, of so many points."""

    box: Box
    text: str
    points: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Row of a rank, lane of a stream in a row, number of a stage in its rank, and time's scale.

    Attributes:
        rows: Row by rank, 0 on top.
        lanes: Top and bottom within a row, by stream.
        chunks: Number of a stage among the stages of its rank, by (rank, stage).
        start: Start of the picture in `unit`.
        end: End of the picture in `unit`.
        unit: Unit of time.
        per_second: How many of the unit make a second.
        row_inches: Height of a row.
        column_inches: Width of the rows.
        dense: Whether there are too many boxes for labels and hatches to be readable.
        all_labels: Whether boxes are numbered only where all of them have room, and none that is
            hatched.
        versions: Version of the weights that a micro-batch meets, by stage and micro-batch; empty
            where there is one at a time.
    """

    rows: Mapping[int, int]
    lanes: Mapping[str, tuple[float, float]]
    chunks: Mapping[tuple[int, int], int]
    start: float
    end: float
    unit: str
    per_second: float
    row_inches: float
    column_inches: float
    dense: bool
    all_labels: bool = False
    versions: Sequence[Sequence[int]] = ()

    @property
    def chunk_count(self) -> int:
        """Most chunks that any rank holds."""
        return 1 + max(self.chunks.values(), default=0)

    @property
    def height_inches(self) -> float:
        """Height of all rows."""
        return self.row_inches * len(self.rows)

    @property
    def label_points(self) -> float:
        """Size of the numbers in the boxes, points."""
        top, bottom = self.lanes["compute"]
        return min(POINTS, 0.6 * 72 * self.row_inches * (bottom - top))

    def boxes(self, spans: Iterable[Span]) -> list[Box]:
        """Boxes of the spans that are partly between the picture's start and its end."""
        deepest = self.chunk_count
        return [
            self.box(span, deepest)
            for span in spans
            if span.start * self.per_second < self.end
            and (span.end * self.per_second > self.start or not self.start)
        ]

    def box(self, span: Span, deepest: int) -> Box:
        """Rectangle of a span, cut at the picture's ends, where ranks hold `deepest` chunks."""
        row = self.rows[span.rank]
        top, bottom = self.lanes[span.stream]
        chunk = self.chunks.get((span.rank, span.stage), 0) if is_chunked(span) else 0
        exposed = span.exposed if span.stream == "compute" else 0.0
        right = min(span.end * self.per_second, self.end)
        return Box(
            span,
            max(span.start * self.per_second, self.start),
            right,
            row + top,
            row + bottom,
            min(max(self.start, max(span.start, span.end - exposed) * self.per_second), right),
            colours.shade(colours.look_of(span.kind, span.stream).colour, chunk, deepest),
        )

    def waits(self, boxes: Iterable[Box]) -> list[Edges]:
        """Where compute waits for a collective between its boxes, on its lane.

        That is the exposed part of a gradient's reduction, or of weights gathered behind it.
        """
        top, bottom = self.lanes[Stream.COMPUTE]
        parts = []
        for box in boxes:
            span, row = box.span, self.rows[box.span.rank]
            left = max(box.left, (span.end - span.exposed) * self.per_second)
            if span.stream == Stream.DP and left < box.right:
                parts.append((left, box.right, row + top, row + bottom))
        return parts

    def pixels(self, box: Box) -> float:
        """Width of the part of a box that has room for a label."""
        return (box.tail - box.left) / (self.end - self.start) * self.column_inches * DPI

    def labels(self, boxes: Iterable[Box], width: Measure) -> Iterator[Label]:
        """Micro-batch numbers for the boxes that have room, with the kind where all have room.

        `width` measures a text of so many points, in pixels. Narrow boxes have smaller numbers.
        """
        size = self.label_points
        if self.dense or size < _LABEL_POINTS:
            return
        numbered = [
            box
            for box in boxes
            if is_chunked(box.span) and box.span.microbatch >= 0 and box.tail > box.left
        ]
        digits = max((len(str(box.span.microbatch)) for box in numbered), default=0)
        # W is the widest letter and 0 as wide as any digit.
        named = all(self.pixels(box) > width("W" + "0" * digits, size) for box in numbered)
        labels = [self._label(box, named, width) for box in numbered]
        if not self.all_labels:
            yield from (label for label in labels if label.points)
        elif all(label.points == size for label in labels):
            # on a hatch, small numbers would only be more lines
            yield from (label for label in labels if not label.box.look.hatch)

    def _label(self, box: Box, named: bool, width: Measure) -> Label:
        """The number of a box in the largest size that it has room for; of 0 points in none."""
        number = str(box.span.microbatch)
        need = ("W" if named else "") + "0" * len(number)
        sizes = (self.label_points, max(_SMALLER * self.label_points, _LABEL_POINTS))
        room = self.pixels(box)
        fitting = (size for size in sizes if room > max(_LABEL_PX, width(need, size) + _LABEL_ROOM))
        return Label(box, (box.span.kind if named else "") + number, next(fitting, 0.0))

    def version_of(self, label: Label, width: Measure) -> tuple[str, float]:
        """Which version of the weights a box's micro-batch meets, and its size, in points.

        Empty where it does not fit below the number, or the pipeline has one version at a time.
        """
        if not self.versions:
            return "", 0.0
        box = label.box
        text = f"v{self.versions[box.span.stage][box.span.microbatch]}"
        tall = 72 * self.row_inches * (box.bottom - box.top)
        for size in (min(label.points, 0.75 * self.label_points), _LABEL_POINTS):
            lines = (label.points + size) * _LEADING
            if lines < tall and width(text, size) < self.pixels(box):
                return text, size
        return "", 0.0

    def path(self, spans: Iterable[Span]) -> tuple[list[float], list[float]]:
        """A line through each span from its start to its end, below the labels: all x, all y."""
        x: list[float] = []
        y: list[float] = []
        for span in spans:
            box = self.box(span, self.chunk_count)
            x += [box.left, span.end * self.per_second]
            y += [0.2 * box.top + 0.8 * box.bottom] * 2
        return x, y


def readable_unit(seconds: float) -> tuple[str, float]:
    """Unit in which a length of time reads well, and how many of it make a second."""
    if seconds >= 1.0:
        return "s", 1.0
    return ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)


def is_chunked(span: Span) -> bool:
    """Whether a span is a pass of one of the rank's chunks, which has a shade and a number."""
    return span.stream == "compute" and span.kind in colours.CHUNKED and span.stage >= 0
