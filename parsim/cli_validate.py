"""`parsim validate`: predicted against measured steps, kernels or collectives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.errors import InputError
from parsim.terminal import AsJson, note, print_json, progress, show

if TYPE_CHECKING:
    from parsim.report.accuracy import LeftOut
    from parsim.validation.compare import Validation


def validate(
    tables: Annotated[
        list[Path] | None, typer.Argument(metavar="TABLE.csv", help="default: shipped tables")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="every row, and the assumptions per stack")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="write a Markdown report, with a CSV and a picture beside")
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="the tables hold times of single kernels")
    ] = False,
    collectives: Annotated[
        bool, typer.Option("--collectives", help="tables of timed collectives instead of steps")
    ] = False,
    uncalibrated: Annotated[
        bool, typer.Option("--uncalibrated", help="collectives without the measured curves")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict measured runs (or kernels, or collectives) and print signed errors."""
    _check_validation(kernels, collectives, uncalibrated, report)
    if kernels:
        return _validate_kernels(tables, verbose, as_json)
    if collectives:
        return _validate_collectives(tables, uncalibrated, verbose, as_json)
    from parsim.validation.compare import shipped_tables
    from parsim.validation.compare import validate as compare

    if report is not None:
        from parsim.report.accuracy_files import check_report

        check_report(report, tables or [])
    with progress("predicting rows") as step:
        found = compare(tables or shipped_tables(), progress=step)
    if as_json:
        print_json(found.to_json())
    else:
        from parsim.report.text import validation_view

        show(validation_view(found, rows=verbose or bool(tables)))
        _explain(found, verbose)
    if report is not None:
        from parsim.report.accuracy_files import write_accuracy

        words = " ".join(str(path) for path in tables or [])
        command = " ".join(f"parsim validate {words} --report {report}".split())
        write_accuracy(
            found, report, command=command, left_out=None if tables else _left_out(found)
        )
        note(f"report written to {report}")


def _left_out(found: Validation) -> LeftOut:
    """Coverage of the shipped tables' intervals by figures without each."""
    from parsim.sim.known_errors import shipped_errors
    from parsim.validation.interval_leave_out import leave_sources_out
    from parsim.validation.intervals import residuals_of

    return leave_sources_out(residuals_of(found), shipped_errors())


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
    from parsim.validation.kernel_tables import shipped_kernel_tables
    from parsim.validation.kernels import validate_kernels

    with progress("predicting kernels") as step:
        found = validate_kernels(tables or shipped_kernel_tables(), progress=step)
    if as_json:
        print_json(found.to_json())
        return
    from parsim.report.kernels import kernels_view

    show(kernels_view(found, rows=verbose))


def _validate_collectives(
    tables: list[Path] | None, uncalibrated: bool, rows: bool, as_json: bool
) -> None:
    from parsim.validation.collectives import MODES, shipped_collectives, validate_collectives

    with progress("predicting collectives") as step:
        found = validate_collectives(
            tables or shipped_collectives(),
            modes=MODES[1:] if uncalibrated else MODES,
            progress=step,
        )
    if as_json:
        print_json(found.to_json())
        return
    from parsim.report.collectives import collectives_view

    show(collectives_view(found, rows=rows))
    for said in sorted({said for row in found.rows for said in row.notes}):
        note(f"note: {said}")


def _explain(found: Validation, verbose: bool) -> None:
    from parsim.validation.assumptions import explain

    notes = sorted({note for row in found.rows for note in row.notes})
    for said in notes:
        note(f"note: {said}")
    if verbose:
        for stack in found.stacks:
            sys.stdout.write("\n".join(explain(stack)) + "\n")
