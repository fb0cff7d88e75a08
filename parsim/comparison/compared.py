"""Two timelines side by side, quantity by quantity, as a record, and whether they are alike.

Both are read from the `meta` of timelines. A prediction says `device`, `device_kind` ("cpu" or
"cuda") and `uncalibrated`; a measurement `device_kind`, `device_names` and `shared_devices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from parsim.comparison.quantities import PEAK, STEP
from parsim.results import Result
from parsim.units import GIB, MIB

_KINDS: Final = {"cpu": "CPU cores", "cuda": "GPUs"}


def unlike(predicted: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    """Why times of the two cannot be compared; empty where they can, or nothing is known."""
    kinds = [meta.get("device_kind") for meta in (predicted, measured)]
    if all(kinds) and kinds[0] != kinds[1]:
        first, second = (_KINDS.get(str(kind), str(kind)) for kind in kinds)
        return (
            f"predicted for other hardware: {first} ({predicted.get('system')}), run on {second}; "
            f"predict with a file of parsim calibrate (--device), or another cluster.system"
        )
    if measured.get("shared_devices"):
        return f"{measured['shared_devices']}; the prediction gives each rank a device of its own"
    names = [str(name) for name in measured.get("device_names", ())]
    device = str(predicted.get("device", ""))
    if kinds == ["cuda", "cuda"] and names and uncalibrated(predicted):
        words = {word for name in names for word in name.lower().replace("-", " ").split()}
        if device.split("-")[0] not in words:
            return (
                f"predicted for other hardware: {device}, run on {', '.join(sorted(set(names)))}; "
                f"predict with a file of parsim calibrate (--device), or another cluster.system"
            )
    return ""


def uncalibrated(predicted: Mapping[str, Any]) -> tuple[str, ...]:
    """Device and system of a prediction whose constants are the catalog's alone."""
    return tuple(str(name) for name in predicted.get("uncalibrated", ()))


SLOW_CORES = 1.15
"""Pace from which on cores are told to be slow: on a quiet machine it is 1.02 to 1.08."""


def slow_cores(pace: float) -> str:
    """What to say of cores that take so many times as long as when calibrated; empty if alike."""
    if pace < SLOW_CORES:
        return ""
    return (
        f"cores took {pace:.2f} times as long as when they were calibrated: "
        f"of that the prediction knows nothing"
    )


def error_title(names: tuple[str, ...]) -> str:
    """The head of a column of errors, with what was not calibrated for them."""
    return f"error ({', '.join(names)}: not calibrated)" if names else "error"


def drawn_step(measured: Mapping[str, Any]) -> str:
    """Which step a measured timeline draws, where it is not as long as the step time that it says.

    Empty where the two agree to 1 %, or it does not say.
    """
    drawn, typical = measured.get("recorded_step_s"), measured.get("step_time_s")
    if not drawn or not typical or abs(drawn / typical - 1.0) < 0.01:
        return ""
    count = measured.get("recorded_steps")
    nearest = f", of {count} recorded ones the nearest to the median" if count else ""
    return f"drawn is a step {100 * (drawn / typical - 1.0):+.1f} % off it{nearest}"


SCHEMA_VERSION = 1
JUDGED = (STEP, PEAK)
"""Quantities whose errors must stay within the tolerance."""

Names = tuple[str, str]
PREDICTED_MEASURED: Names = ("predicted", "measured")
_SECONDS = ((1.0, "s", 3), (1e-3, "ms", 3), (1e-6, "us", 3))
_BYTES = ((GIB, "GiB", 3), (MIB, "MiB", 3), (1.0, "B", 0))


class Compared(NamedTuple):
    """One quantity of the step (`rank` None) or of a rank; None where a timeline lacks it.

    Seconds of other hardware are not `comparable`.
    """

    quantity: str
    rank: int | None
    predicted: float | None
    measured: float | None
    comparable: bool = True

    @property
    def unit(self) -> str:
        """`s`, `bytes` or `fraction`."""
        end = self.quantity.rpartition("_")[2]
        return end if end in ("s", "bytes") else "fraction"

    @property
    def difference(self) -> float | None:
        """Predicted - measured."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted - self.measured

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None where nothing, or 0, or another thing is."""
        if self.predicted is None or not self.measured or not self.comparable:
            return None
        return (self.predicted - self.measured) / self.measured

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """A value in the unit that suits the row's larger one; a dash where there is none."""
        if value is None:
            return "-"
        factor, unit, digits = self._scale()
        if signed and unit == "%":
            unit = "points"  # 30 % less 20 % are 10 points, not 10 %
        number = round(value / factor, digits) + 0.0  # no -0.000
        return f"{number:{'+' if signed else ''}.{digits}f} {unit}"

    def _scale(self) -> tuple[float, str, int]:
        """What a printed unit is worth, its name, and the digits behind the point."""
        if self.unit == "fraction":
            return 0.01, "%", 1
        largest = max(abs(self.predicted or 0.0), abs(self.measured or 0.0))
        scales = _SECONDS if self.unit == "s" else _BYTES
        return next((scale for scale in scales if largest >= scale[0] / 10), scales[-1])

    @property
    def error_text(self) -> str:
        """Signed percent; a dash where there is no error."""
        return "-" if self.error is None else f"{round(100 * self.error, 1) + 0.0:+.1f} %"

    def to_json(self) -> dict[str, Any]:
        """One entry of `rows` in `compare --json`."""
        return {
            "quantity": self.quantity,
            "rank": self.rank,
            "predicted": self.predicted,
            "measured": self.measured,
            "unit": self.unit,
            "error": self.error,
        }


class Pair(NamedTuple):
    """A compared rank, and the ranks of either timeline that stand for it."""

    rank: int
    predicted: tuple[int, ...]
    measured: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TimelineComparison(Result):
    """All rows: of the step, then of each kind of span, then of each rank.

    `spread` says by quantity how the measurement scattered (median, min, mad, n), where known.
    `names` are what texts call the two timelines: predicted and measured, or first and second
    where both are predictions or both measurements; the rows' fields are the same then. `unlike`
    says why times cannot be compared, if so; `uncalibrated` are the device and the system of the
    prediction that nobody measured.
    """

    rows: tuple[Compared, ...]
    pairs: tuple[Pair, ...]
    spread: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...]
    tolerance: float
    names: Names = PREDICTED_MEASURED
    unlike: str = ""
    uncalibrated: tuple[str, ...] = ()

    @property
    def judges(self) -> str:
        """What the last column is: a prediction's error, or the difference of two alike."""
        if self.names != PREDICTED_MEASURED:
            return "relative difference"
        return error_title(self.uncalibrated)

    def row(self, quantity: str, rank: int | None = None) -> Compared:
        """The row of one quantity."""
        return next(row for row in self.rows if (row.quantity, row.rank) == (quantity, rank))

    @property
    def worst(self) -> Compared | None:
        """The step time or peak with the largest error; None where neither has one."""
        judged = [row for row in self.rows if row.quantity in JUDGED and row.error is not None]
        return max(judged, key=lambda row: abs(row.error or 0.0), default=None)

    @property
    def within_tolerance(self) -> bool:
        """Whether the errors of step time and of every rank's peak are small enough."""
        worst = self.worst
        return not self.unlike and (worst is None or abs(worst.error or 0.0) <= self.tolerance)

    @property
    def headline(self) -> str:
        """The worst judged error, and the tolerance."""
        if self.unlike:
            return f"step times cannot be judged: {self.unlike}"
        worst = self.worst
        if worst is None:
            return f"neither step time nor peak memory can be judged: nothing is {self.names[1]}"
        where = "" if worst.rank is None else f" of rank {worst.rank}"
        side = "within" if self.within_tolerance else "outside"
        return (
            f"{worst.quantity}{where}: {self.names[0]} {worst.text(worst.predicted)}, "
            f"{self.names[1]} {worst.text(worst.measured)}, {self.judges} {worst.error_text}, "
            f"is {side} the tolerance of {100 * self.tolerance:g} %"
        )

    def records(self) -> list[dict[str, Any]]:
        """One row per quantity, of the step and of each rank."""
        return [row.to_json() for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim compare --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "names": list(self.names),
            "unlike": self.unlike or None,
            "uncalibrated": list(self.uncalibrated),
            "rows": self.records(),
            "within_tolerance": self.within_tolerance,
        }
