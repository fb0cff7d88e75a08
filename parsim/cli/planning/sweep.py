"""`parsim sweep`: every combination of some values as a table, a picture and a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.terminal import (
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
    from parsim.sweeps import Case, Outcome, Outcomes

Fields = Annotated[
    list[str],
    typer.Option("--over", metavar="KEY=A,B,...", help="values of a field; several: all pairs"),
]
Best = Annotated[bool, typer.Option("--best", help="search the best plan in each case")]
Weak = Annotated[
    bool, typer.Option("--weak", help="weak scaling: the batch grows with cluster.nodes")
]
Table = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help=".csv; rows that it has are not run again"),
]
Picture = Annotated[Path | None, typer.Option("--picture", metavar="FILE", help=".png or .svg")]
Jobs = Annotated[int, typer.Option(min=1, max=1024, help="processes")]
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
    jobs: Jobs = 1,
    part: Part = None,
    as_json: AsJson = False,
) -> None:
    """Predict every combination of some values of a scenario's fields."""
    from parsim.report.writing import check_other
    from parsim.sweeps import cases_over, read_over
    from parsim.sweeps.case import part_of

    if output is not None:
        if output.suffix.lower() != ".csv":
            raise InputError(f"cannot write a table to {output}; allowed: .csv")
        check_other(output, scenario)
    overs = [(whole_key(key), values) for key, values in map(read_over, over)]
    pairs = override_pairs(overrides, device)
    cases = cases_over(scenario, overs, pairs, best=best, weak=weak)
    if part is not None:
        cases = part_of(cases, part)
    result = run_all(cases, output, picture, jobs)
    present(result, picture, as_json=as_json)


def present(result: Outcomes, picture: Path | None, *, as_json: bool) -> None:
    """Print the rows of all cases as a table or as JSON, and draw them where a picture is asked."""
    if as_json:
        print_json(result.to_json())
    else:
        from parsim.report.text.planning.sweep import outcomes_view

        show(outcomes_view(result))
    if picture is not None:
        from parsim.report.picture.planning.sweep import draw_outcomes

        draw_outcomes(result, picture)
        note(f"picture written to {picture}")


def run_all(
    cases: Sequence[Case], output: Path | None, picture: Path | None, jobs: int
) -> Outcomes:
    """Run all cases; the table grows with each, and Ctrl-C keeps what there is."""
    from parsim.report.picture.saving import check_picture
    from parsim.report.writing import check_writable
    from parsim.sweeps import Outcomes, run_cases
    from parsim.sweeps.outcome import read_outcomes

    check_picture(picture)
    keys = tuple(cases[0].values)
    known: dict[str, Outcome] = {}
    if output is not None:
        check_writable(output)
        known = read_outcomes(output, keys) if output.exists() else {}
    rows: list[Outcome] = []
    with progress("running cases") as step:
        try:
            for outcome in run_cases(cases, known=known, jobs=jobs):
                rows.append(outcome)
                step(len(rows), len(cases))
                _save(output, rows, keys)
        except KeyboardInterrupt:
            note(f"interrupted after {len(rows)} of {len(cases)} cases")
    return Outcomes(rows=tuple(rows), keys=keys, total=len(cases))


def _save(output: Path | None, rows: Sequence[Outcome], keys: Sequence[str]) -> None:
    from parsim.report.writing import csv_text, write_text
    from parsim.sweeps.outcome import csv_rows

    if output is not None:
        write_text(output, csv_text(csv_rows(rows, keys)))
