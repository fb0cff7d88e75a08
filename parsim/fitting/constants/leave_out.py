"""How far the constants carry: each source predicted by constants that have not seen it.

For each family and each source with rows in the fit, the family is fitted again from its textbook
values to the other sources' rows. A constant that only the left-out source identifies then stays
near its textbook value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parsim.fitting.constants.families import Family
from parsim.fitting.constants.fit import Fitted, Rows, Values, fit, textbook
from parsim.fitting.constants.source_cases import SourceCases
from parsim.validation.coverage import Coverage, Summary, summarise

Judge = Callable[[SourceCases, list[SourceCases], Values], Coverage]
"""Coverage of intervals that have not seen a source, given the family's sources and the constants
fitted without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Errors of all predictable rows of one source under three sets of constants.

    `intervals` say whether those of the last hold, without the source's rows in their figures.
    """

    family: str
    source: str
    textbook: Summary
    fitted: Summary
    left_out: Summary
    intervals: Coverage | None = None


def leave_out(
    family: Family,
    sources: list[SourceCases],
    whole: Fitted,
    known: Values,
    tell: Callable[[str], None] = lambda _: None,
    judge: Judge | None = None,
) -> list[LeftOut]:
    """Each source of a family left out once; nothing where only one source has rows in the fit.

    Args:
        family: its constants.
        sources: its rows.
        whole: the fit to all of them.
        known: constants of families fitted before.
        tell: is called with what is done next.
        judge: of intervals; None leaves them out.
    """
    fitted = [source for source in sources if source.fitted]
    out = []
    for source in fitted if len(fitted) > 1 else ():
        tell(f"{family.name}: fit without {source.source.name}")
        again = fit(family, [other for other in fitted if other is not source], known)
        rows = Rows(source.cases)
        summaries = [
            errors_under(rows, {**known, **values})
            for values in (textbook(family), whole.values, again.values)
        ]
        judged = judge(source, sources, {**known, **again.values}) if judge else None
        out.append(
            LeftOut(
                family=family.name,
                source=source.source.name,
                textbook=summaries[0],
                fitted=summaries[1],
                left_out=summaries[2],
                intervals=judged,
            )
        )
    return out


def errors_under(rows: Rows, values: Values) -> Summary:
    """Summary of the rows' errors with these constants."""
    return summarise([float(error) for error in np.expm1(rows.errors(values))], 0)
