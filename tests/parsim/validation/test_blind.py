"""Blind tables: nothing that fits, and nothing that intervals or evidence come from, sees a row."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cost.software import software
from parsim.errors import TableError
from parsim.fitting.intervals.figures import peaks_of, residuals_of
from parsim.fitting.reports.evidence import gather_evidence
from parsim.report.accuracy.blind import blind_lines, first_predicted, unseen_text
from parsim.validation import fitted_rows
from parsim.validation.evidence import UNSEEN, cited
from parsim.validation.fitted_rows import Source, family_sources, source_rows
from parsim.validation.tables import blind_tables, refuse_blind, shipped_tables
from parsim.validation.validate import read_table, validate
from tests.parsim.sim.conftest import gpt_job

ROOT = Path(__file__).parents[3]
BLIND = [path.stem for path in blind_tables()]
PRODUCT = ("parsim/cluster/catalog", "parsim/cost", "parsim/sim", "parsim/validation")
GUARD = "refuse_blind"


def rows(paths: list[Path]) -> Iterator[dict[str, str]]:
    for path in paths:
        yield from read_table(path)


def fingerprint(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("n_gpus", "global_batch_size", "step_time_s"))


def one_row(folder: Path) -> Path:
    """The first row of MLPerf's blind table, under its name."""
    (path,) = [path for path in blind_tables() if path.stem == "mlperf_gpt3_175b"]
    copy = folder / path.name
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    copy.write_text("".join(lines[:2]), encoding="utf-8")
    return copy


def test_there_are_six() -> None:
    sizes = {path.stem: len(read_table(path)) for path in blind_tables()}
    assert sizes == {
        "bigscience_176b": 142,
        "mlperf_deepseek_v3": 9,
        "mlperf_llama2_70b_lora": 166,
        "mlperf_gpt3_175b": 21,
        "mlperf_llama31_405b": 24,
        "published_trainings": 35,
    }


def test_blind_rows_are_in_no_other_table() -> None:
    assert not set(BLIND) & {path.stem for path in shipped_tables()}
    ours = {fingerprint(row) for row in rows(blind_tables()) if row["step_time_s"]}
    assert len(ours) > 150
    assert not ours & {fingerprint(row) for row in rows(shipped_tables())}


def test_what_the_fits_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source of every family, by the only function that gives a fit its rows."""
    read: list[Path] = []

    def noted(path: Path) -> list[dict[str, str]]:
        read.append(path)
        return read_table(path)

    monkeypatch.setattr(fitted_rows, "read_table", noted)
    fitted_rows._table.cache_clear()
    sources = [source for sources in family_sources().values() for source in sources]
    assert all(source_rows(source) for source in sources)
    assert len(set(read)) >= 9
    assert not [path for path in read if "blind" in path.parts or path.stem in BLIND]
    with pytest.raises(TableError, match=f"{BLIND[0]} is blind: no fit"):
        source_rows(Source(name="a slip", table=BLIND[0], every=3))


def test_intervals_and_evidence_refuse_blind_rows(tmp_path: Path) -> None:
    """Not even a copy of the table elsewhere, nor beside others."""
    validation = validate([one_row(tmp_path)])
    assert validation.rows[0].error is not None
    for gather in (residuals_of, peaks_of, gather_evidence):
        with pytest.raises(TableError, match="no fit, interval or evidence may see its rows"):
            gather(validation)
    refuse_blind(path.stem for path in shipped_tables())


def test_the_workshop_does_not_name_them() -> None:
    """No module of the fits says `blind` but to refuse them."""
    paths = [*(ROOT / "parsim" / "fitting").rglob("*.py")]
    assert ROOT / "parsim" / "fitting" / "intervals" / "figures.py" in paths
    for path in paths:
        words = path.read_text(encoding="utf-8").replace(GUARD, "").replace("a blind table", "")
        assert "blind" not in words, path
        assert not [table for table in BLIND if table in words], path


def test_no_constant_and_no_figure_names_them() -> None:
    """Catalogs, software, families, intervals and evidence: no table and none of its rows."""
    names = {*BLIND, *(row["row_id"] for row in rows(blind_tables()))}
    files = [
        path
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".yaml", ".json", ".csv") and "blind" not in path.parts
    ]
    assert {"families.yaml", "interval.json", "evidence.json", "software.yaml"} <= {
        path.name for path in files
    }
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not [name for name in names if name in text], path


def test_the_evidence_counts_open_rows_only() -> None:
    """The report of the open tables lists this many runs with an error."""
    with (ROOT / "reports" / "accuracy.csv").open(encoding="utf-8", newline="") as file:
        listed = [row for row in csv.DictReader(file) if row["error"]]
    text = (ROOT / "parsim" / "validation" / "evidence.json").read_text(encoding="utf-8")
    entries = json.loads(text)["evidence"]
    counted = sum(entry["n"] for entry in entries if entry["software"].startswith("any"))
    assert counted == len(listed)
    assert not set(BLIND) & {row["table"] for row in listed}


def test_no_fit_has_seen_the_public_8b_table() -> None:
    tables = {source.table for sources in family_sources().values() for source in sources}
    assert "mlperf_llama31_8b_public" in {path.stem for path in shipped_tables()}
    assert "mlperf_llama31_8b_public" not in tables


def test_the_page_on_accuracy_has_both_figures(tmp_path: Path) -> None:
    """Errors of the first commit are as they were kept, today's come from the rows."""
    assert list(first_predicted()) == BLIND
    head, _, first, now = blind_lines(validate([one_row(tmp_path)]))
    assert first.startswith("| mlperf_gpt3_175b | commit e222064, the first to predict it | 21 |")
    assert "| 6.4 % | 4.6 % |" in first
    assert now.startswith("| mlperf_gpt3_175b | today | 1 |")
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert f"{head}\n" in page
    assert f"{first}\n| mlperf_gpt3_175b | today | 21 | " in page


@pytest.mark.slow
def test_what_predictions_cite_of_blind_runs_is_what_they_give() -> None:
    kept, now = (
        json.loads(text)["evidence"]
        for text in (UNSEEN.read_text("utf-8"), unseen_text(validate(blind_tables())))
    )
    assert [entry["software"] for entry in kept] == [entry["software"] for entry in now]
    for old, new in zip(kept, now, strict=True):
        assert old["n"] == new["n"]
        for name in ("mean_abs_error", "max_abs_error", "bias"):
            assert old[name] == pytest.approx(new[name], abs=1e-3), (old["software"], name)


def test_a_prediction_cites_runs_that_no_fit_has_seen() -> None:
    plain = gpt_job()
    blind = cited(replace(plain, software=software("megatron-deepspeed-2022")))
    assert re.search(
        r"; 148 blind runs under megatron-deepspeed-2022, any device, in no fit: mean error "
        r"\d+\.\d %, bias [+-]\d+\.\d %$",
        blind,
    )
    assert "blind" not in cited(replace(plain, software=software("torchtitan")))
