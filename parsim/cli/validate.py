"""`parsim validate`: predicted against measured steps, kernels or collectives."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.terminal import AsJson, note, print_json, progress, show
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.validation.validate import Validation

Tables = Annotated[
    list[Path] | None, typer.Argument(metavar="TABLE.csv", help="default: shipped tables")
]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="every row, and what fills its blanks")
]
ReportOutput = Annotated[
    Path | None, typer.Option(help="write a Markdown report, with a CSV and a picture beside")
]
Kernels = Annotated[bool, typer.Option("--kernels", help="the tables hold times of single kernels")]
Collectives = Annotated[
    bool, typer.Option("--collectives", help="tables of timed collectives instead of steps")
]
Uncalibrated = Annotated[
    bool, typer.Option("--uncalibrated", help="collectives without the measured curves")
]


def validate(
    tables: Tables = None,
    verbose: Verbose = False,
    report: ReportOutput = None,
    kernels: Kernels = False,
    collectives: Collectives = False,
    uncalibrated: Uncalibrated = False,
    as_json: AsJson = False,
) -> None:
    """Predict measured runs (or kernels, or collectives) and print signed errors."""
    _check_validation(kernels, collectives, uncalibrated, report)
    if kernels:
        _validate_kernels(tables, verbose, as_json)
    elif collectives:
        _validate_collectives(tables, uncalibrated, verbose, as_json)
    else:
        _validate_steps(tables or [], verbose, report, as_json)


def _validate_steps(tables: list[Path], verbose: bool, report: Path | None, as_json: bool) -> None:
    """Compare measured steps with predictions, print them, and write the report."""
    from parsim import api
    from parsim.report.accuracy.files import check_report
    from parsim.report.text.measured.steps import filled_lines, validation_view
    from parsim.validation.step.assumptions import explain
    from parsim.validation.tables import check_predicted

    if report is not None:
        check_report(report, tables)
    with progress("predicting rows") as step:
        validation = api.validate(tables or None, progress=step)
    if as_json:
        print_json(validation.to_json())
    else:
        show(validation_view(validation, rows=verbose or bool(tables)))
        _note_all(row.notes for row in validation.rows)
        if verbose:
            assumed = [line for each in validation.stacks.items() for line in explain(*each)]
            sys.stdout.write("\n".join([*assumed, *filled_lines(validation), ""]))
    if report is not None:
        _write_report(validation, tables, report)
    check_predicted(validation.rows)


def _write_report(validation: Validation, tables: list[Path], report: Path) -> None:
    """Write the page of a validation, with what was left out of the fits for the shipped tables."""
    from parsim.report.accuracy.files import write_accuracy
    from parsim.validation.coverage import shipped_left_out

    command = " ".join(["parsim", "validate", *map(str, tables), "--report", str(report)])
    left_out = None if tables else shipped_left_out()
    write_accuracy(validation, report, command=command, left_out=left_out)
    note(f"report written to {report}")


def _check_validation(
    kernels: bool, collectives: bool, uncalibrated: bool, report: Path | None
) -> None:
    if kernels and collectives:
        raise InputError("--kernels and --collectives are for different tables; use one")
    if uncalibrated and not collectives:
        raise InputError("--uncalibrated is for collectives; add --collectives")
    for given, target in ((kernels, "fit-kernels"), (collectives, "fit-collectives")):
        if given and report is not None:
            raise InputError(f"--report is for runs; that report comes from make {target}")


def _validate_kernels(tables: list[Path] | None, verbose: bool, as_json: bool) -> None:
    from parsim.report.text.measured.benchmarks import kernels_view
    from parsim.validation.kernel.validate import validate_kernels
    from parsim.validation.tables import check_predicted, shipped_tables

    with progress("predicting kernels") as step:
        validation = validate_kernels(tables or shipped_tables("kernels"), progress=step)
    if as_json:
        print_json(validation.to_json())
    else:
        show(kernels_view(validation, rows=verbose))
    check_predicted(validation.rows)


def _validate_collectives(
    tables: list[Path] | None, uncalibrated: bool, rows: bool, as_json: bool
) -> None:
    from parsim.report.text.measured.benchmarks import collectives_view
    from parsim.validation.collective.validate import MODES, validate_collectives
    from parsim.validation.tables import check_predicted, shipped_tables

    files, modes = tables or shipped_tables("collectives"), MODES[1:] if uncalibrated else MODES
    with progress("predicting collectives") as step:
        validation = validate_collectives(files, modes=modes, progress=step)
    if as_json:
        print_json(validation.to_json())
    else:
        show(collectives_view(validation, rows=rows))
        _note_all(row.notes for row in validation.rows)
    check_predicted(validation.rows)


def _note_all(notes: Iterable[Iterable[str]]) -> None:
    """Write what rows say of their predictions, each remark once."""
    for remark in sorted({remark for remarks in notes for remark in remarks}):
        note(f"note: {remark}")
