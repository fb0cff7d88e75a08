"""`evidence.json`: errors of all shipped rows per device and software, which predictions cite."""

from __future__ import annotations

import json

from parsim.sim.confidence.known_errors import any_software
from parsim.validation.coverage import summarise
from parsim.validation.evidence import Evidence
from parsim.validation.tables import refuse_blind
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow


def gather_evidence(validation: Validation) -> list[Evidence]:
    """Figures per (device, software) and per device, in a fixed order.

    Raises:
        TableError: a row is of a blind table.
    """
    refuse_blind(validation.tables)
    groups: dict[tuple[str, str], list[ValidatedRow]] = {}
    for row in validation.rows:
        if row.error is not None:
            practice = row.practice or row.software
            for software in (practice, any_software(practice)):
                groups.setdefault((row.device, software), []).append(row)
    return [_figures(device, software, rows) for (device, software), rows in sorted(groups.items())]


def _figures(device: str, software: str, rows: list[ValidatedRow]) -> Evidence:
    summary = summarise([row.error for row in rows if row.error is not None], 0)
    return Evidence(
        device=device,
        software=software,
        n=summary.n,
        mean_abs_error=round(summary.mean_abs_error or 0.0, 4),
        max_abs_error=round(summary.max_abs_error or 0.0, 4),
        bias=round(summary.bias or 0.0, 4),
    )


def evidence_text(validation: Validation) -> str:
    """What `evidence.json` holds."""
    entries = [entry.to_json() for entry in gather_evidence(validation)]
    return json.dumps({"schema_version": 1, "evidence": entries}, indent=1) + "\n"
