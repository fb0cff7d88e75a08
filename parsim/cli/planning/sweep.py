"""`parsim sweep`: every combination of some values as a table, a picture and a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.terminal import (
    INTERRUPTED,
    AsJson,
    CalibratedDevice,
    Overrides,
    ScenarioPath,
    note,
    override_pairs,
    print_json,
    progress,
    show,
    whole_key,
)
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.sweeps import Outcome, Outcomes, SweepCase

Fields = Annotated[
    list[str],
    typer.Option(
        "--over", metavar="KEY=A,B,...", help="values of a field; twice: all combinations"
    ),
]
Best = Annotated[bool, typer.Option("--best", help="search the best plan in each case")]
Weak = Annotated[
    bool, typer.Option("--weak", help="weak scaling: the batch grows with cluster.nodes")
]
Table = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help=".csv or .parquet; rows that it has are not run again",
    ),
]
Picture = Annotated[Path | None, typer.Option("--picture", metavar="FILE", help=".png or .svg")]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=0, max=1024, help="cases at a time; 0: all cores, as with --backend", show_default="1"
    ),
]
Backend = Annotated[
    str | None, typer.Option("--backend", help="run the cases through joblib: loky, ray or dask")
]
Part = Annotated[
    str | None, typer.Option("--part", metavar="I/N", help="one of N machines' share: 2/4")
]


def sweep(  # noqa: PLR0913  one parameter an option
    scenario: ScenarioPath,
    over: Fields,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    best: Best = False,
    weak: Weak = False,
    output: Table = None,
    picture: Picture = None,
    jobs: Jobs = None,
    backend: Backend = None,
    part: Part = None,
    as_json: AsJson = False,
) -> None:
    """Predict every combination of some values of a scenario's fields."""
    from parsim.report.writing import check_other
    from parsim.sweeps import cases_over, read_over
    from parsim.sweeps.case import part_of
    from parsim.sweeps.table_file import check_suffix
    from parsim.sweeps.workers import read_backend

    if output is not None:
        check_suffix(output)
        check_other(output, scenario)
    where = None if backend is None else read_backend(backend)
    at_once = (0 if where else 1) if jobs is None else jobs
    overs = [(whole_key(key), values) for key, values in map(read_over, over)]
    pairs = override_pairs(overrides, device)
    cases = cases_over(scenario, overs, pairs, best=best, weak=weak)
    if part is not None:
        cases = part_of(cases, part)
    result = run_all(cases, output, picture, at_once, where)
    present(result, picture, as_json=as_json)


def present(result: Outcomes, picture: Path | None, *, as_json: bool) -> None:
    """Print the rows of all cases as a table or as JSON, and draw them where a picture is asked.

    Raises:
        InputError: none of the cases can be.
        typer.Exit: Ctrl-C came before the last case.
    """
    if as_json:
        print_json(result.to_json())
    else:
        from parsim.report.text.planning.sweep import outcomes_view

        show(outcomes_view(result))
    interrupted = len(result.rows) < result.total
    if result.fastest is None and not interrupted:
        raise InputError(f"{result.headline}; the first: {result.rows[0].error}")
    if picture is not None and result.fastest is not None:
        from parsim.report.picture.planning.sweep import draw_outcomes

        draw_outcomes(result, picture)
        note(f"picture written to {picture}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def run_all(
    cases: Sequence[SweepCase],
    output: Path | None,
    picture: Path | None,
    jobs: int,
    backend: str | None = None,
) -> Outcomes:
    """Run all cases; the table grows with each, and Ctrl-C keeps what there is."""
    from parsim.report.picture.saving import check_picture
    from parsim.sweeps import Outcomes, run_cases

    check_picture(picture)
    keys = tuple(cases[0].values)
    known = _known(cases, output, keys)
    later = dict(known)
    rows: list[Outcome] = []
    with progress("running cases") as step:
        try:
            for outcome in run_cases(cases, known=known, jobs=jobs, backend=backend):
                rows.append(outcome)
                later.pop(outcome.digest, None)
                step(len(rows), len(cases))
                _save(output, [*rows, *later.values()], keys)
        except KeyboardInterrupt:
            note(_how_far(len(rows), len(cases), output))
    return Outcomes(rows=tuple(rows), keys=keys, total=len(cases))


def _known(
    cases: Sequence[SweepCase], output: Path | None, keys: Sequence[str]
) -> dict[str, Outcome]:
    """The rows of these cases that the table has of an earlier run."""
    from parsim.report.writing import check_writable
    from parsim.sweeps.table_file import read_outcomes
    from parsim.units import counted

    if output is None:
        return {}
    check_writable(output)
    rows = read_outcomes(output, keys) if output.exists() else {}
    known = {digest: rows[digest] for case in cases if (digest := case.digest) in rows}
    if known:
        note(f"{output} has {len(known)} of {counted(len(cases), 'case')}; they are not run again")
    return known


def _how_far(done: int, total: int, output: Path | None) -> str:
    from parsim.units import counted

    text = f"interrupted after {done} of {counted(total, 'case')}"
    return text if output is None else f"{text}; the same command goes on from {output}"


def _save(output: Path | None, rows: Sequence[Outcome], keys: Sequence[str]) -> None:
    from parsim.report.writing import csv_text, replace_file
    from parsim.sweeps.table_file import cells_of, is_parquet, parquet_of

    if output is None:
        return
    if is_parquet(output):
        replace_file(output, parquet_of(rows, keys, output))
    else:
        replace_file(output, csv_text(cells_of(rows, keys)).encode())
