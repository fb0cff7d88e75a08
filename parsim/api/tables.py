"""Tables of predictions: measured runs beside what is predicted of them, and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, cast

from parsim.api.plans import Progress
from parsim.arguments import PATH, File, check_kind, check_whole, several

if TYPE_CHECKING:
    from parsim.cost.collective.kinds import Algorithm
    from parsim.cost.collective.nccl import Protocol
    from parsim.sim.benchmark.collective_sweep import Collective, Sweep
    from parsim.sim.benchmark.group_layout import GroupLayout
    from parsim.validation.validate import Validation

SIZES = tuple(8 * 2**doublings for doublings in range(31))
"""8 bytes to 8 GiB, each twice the one before."""


def validate(
    tables: Sequence[File] | File | None = None, *, progress: Progress | None = None
) -> Validation:
    """Predict measured runs and compare: signed errors, ranking, coverage of the intervals.

    Args:
        tables: CSV files with a measured run per row, or one of them; the shipped ones where not
            given.
        progress: called with (rows done, rows in all).

    Raises:
        InputError: the tables are no files.
        TableError: a table cannot be read at all.
    """
    from parsim.validation.tables import all_step_tables
    from parsim.validation.validate import validate as predict_rows

    paths = all_step_tables()
    if tables is not None:
        takes = "the path of a CSV file, or a list of such paths"
        files = several("tables", tables, PATH, takes)
        paths = [Path(cast("File", file)) for file in files]
    return predict_rows(paths, progress=progress)


def collectives(
    system: str,
    nodes: int = 1,
    *,
    ranks: int | None = None,
    kinds: Sequence[Collective] | Collective | None = None,
    sizes: Sequence[int | str] | int | str = SIZES,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
) -> Sweep:
    """Predict collectives by kind and size, as nccl-tests prints them.

    Args:
        system: a name of the catalog, see `parsim catalog systems`.
        nodes: nodes of the system.
        ranks: ranks of the group, equally many on each node; every device where not given.
        kinds: `all_reduce`, or a list of such names; all that can be done where not given.
        sizes: bytes, or a text with a unit such as "64MiB"; or a list of them.
        algorithm: force `ring`, `tree`, `nvls`, ... as NCCL_ALGO does.
        protocol: force `LL`, `LL128` or `Simple` as NCCL_PROTO does.

    Raises:
        CatalogError: an unknown system.
        InputError: an unknown kind, algorithm or protocol, a size that is no whole number of
            bytes above 0, or none of them.
        PlanError: ranks that do not fit, or a kind that the algorithm or protocol cannot do.
    """
    from parsim.cluster.reader import load_catalog
    from parsim.sim.benchmark.asked import asked_algorithm, asked_protocol, asked_size
    from parsim.sim.benchmark.collective_sweep import sweep
    from parsim.sim.benchmark.group_layout import spread_layout

    check_kind("system", system, str, "a name of `parsim catalog systems`")
    check_whole("nodes", nodes)
    if ranks is not None:
        check_whole("ranks", ranks)
    layout = spread_layout(load_catalog().system(system), nodes, ranks)
    forced = asked_algorithm(algorithm, "algorithm="), asked_protocol(protocol, "protocol=")
    chosen = _kinds(layout, kinds, forced)
    amounts = several("sizes", sizes, (Real, str), "bytes, or texts with a unit")
    return sweep(
        layout,
        chosen,
        [asked_size(size, "sizes") for size in amounts],
        algorithm=forced[0],
        protocol=forced[1],
    )


def _kinds(
    layout: GroupLayout,
    kinds: Sequence[Collective] | Collective | None,
    forced: tuple[Algorithm | None, Protocol | None],
) -> tuple[Collective, ...]:
    """The named collectives, or all that a group can do with the forced algorithm and protocol."""
    from parsim.sim.benchmark.asked import asked_kinds
    from parsim.sim.benchmark.collective_sweep import able_kinds

    if kinds is None:
        return able_kinds(layout, *forced)
    return asked_kinds(several("kinds", kinds, str, "names of collectives"), "kinds=")
