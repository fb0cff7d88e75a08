"""Tables of measurements: which are shipped, their rows as text cells, the walk over all rows.

What a table must hold, and what a row is predicted from, is told by the rooms `step`, `kernel` and
`collective`.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import as_file, files
from io import StringIO
from pathlib import Path
from typing import Protocol, TypeVar

from parsim.errors import TableError
from parsim.files import MOST_ROWS, read_text

Row = TypeVar("Row")
RowText = dict[str, str]
Progress = Callable[[int, int], None]
"""Is called with (rows done, rows in all)."""

Check = Callable[[Path, list[str]], None]
"""Raises TableError where the header (empty for an empty file) lacks what a schema needs."""


class RowSkipped(Exception):
    """This row cannot be predicted; the text says why."""


BLIND = "blind"
"""Folder of the tables that no fit may ever see."""


JUDGED_ALONE = (
    *("amd_instinct_public", "deepspeed_public", "maxtext_tpu_public"),
    *("gpu_tpu_pedia_public", "tpu_recipes_public", "internevo_public", "fms_fsdp_public"),
    *("nemo_automodel_public", "nemo_summaries_public", "torchtitan_a100_public"),
    *("megatron_ci_public", "megatron_bridge_cards_public", "megatron_moe_modelzoo_public"),
    *("kempnerforge_public", "qwen_finetune_public", "paddlenlp_public"),
    *("flash_attention_public", "litgpt_public", "jax_toolbox_public"),
    *("nanotron_public", "torchtune_public", "vectorlm_public"),
    *("xtuner_public", "xtuner_mixtures_public"),
    *("fms_acceleration_public", "torchao_public", "torchprime_public", "prime_rl_public"),
)
"""Tables whose rows are in no group and no level. Publishers of deepspeed_public differ so much
that quantiles of well-known stacks on the same devices would jump with them; the half that was set
aside for fits says what a site adds to stacks that no other table has (`sites.py`), the other half
judges that. The others judge the bars of devices whose libraries no run of another table has, and
of stacks and releases that are told by their sources alone."""


def blind_tables() -> list[Path]:
    """The public tables that only test: no constant and no interval comes from them."""
    return shipped_tables(BLIND)


def refuse_blind(tables: Iterable[str]) -> None:
    """Stop a fit, or what intervals and evidence are gathered from, at a blind table.

    Raises:
        TableError: which table it is.
    """
    blind = {path.stem for path in blind_tables()}
    for table in sorted(blind.intersection(Path(name).stem for name in tables)):
        raise TableError(
            f"table {table} is blind: no fit, interval or evidence may see its rows; use the "
            f"tables of shipped_tables(), and predict this one by itself"
        )


class PredictedRow(Protocol):
    """A row of a table after its prediction; the reason is empty where there is one."""

    @property
    def table(self) -> str:
        """The name of its table."""
        ...

    @property
    def reason(self) -> str:
        """Why it was skipped."""
        ...


def check_predicted(rows: Sequence[PredictedRow]) -> None:
    """Refuse tables of which no row at all could be predicted: a wrong table is no empty result.

    Raises:
        TableError: names each such table, how many rows it has and their most frequent reason.
    """
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.table, []).append(row.reason)
    told = [
        f"{table}: none of {len(all_reasons)} rows could be predicted; "
        f"{Counter(all_reasons).most_common(1)[0][0]}"
        for table, all_reasons in reasons.items()
        if all(all_reasons)
    ]
    if told:
        raise TableError("; ".join(told))


def all_step_tables() -> list[Path]:
    """Every public table of training runs: of transformers, of networks, of strategies."""
    return [*shipped_tables(), *network_tables()]


def network_tables() -> list[Path]:
    """The public tables of networks' runs, with strategies of whole replicas and pipelines."""
    return [*shipped_tables("vision"), *shipped_tables("strategies")]


def shipped_tables(folder: str = "") -> list[Path]:
    """The public tables that come with parsim: of steps, or of a folder below them."""
    with as_file(files("parsim.validation") / "data" / folder) as path:
        return sorted(path.glob("*.csv"))


def predict_tables(
    paths: Sequence[Path],
    read: Callable[[Path], list[RowText]],
    predict: Callable[[str, RowText], Row],
    progress: Progress | None = None,
) -> tuple[Row, ...]:
    """Every row of the tables, in order, by what predicts one row of a named table.

    Raises:
        TableError: a table cannot be read at all.
    """
    listed = [(name, row) for path, name in _names(paths).items() for row in read(path)]
    rows = []
    for done, (name, row) in enumerate(listed, start=1):
        rows.append(predict(name, row))
        if progress:
            progress(done, len(listed))
    return tuple(rows)


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """A table is called after its file; two files of one name are told apart by their paths."""
    stems = Counter(path.stem for path in dict.fromkeys(paths))
    return {path: path.stem if stems[path.stem] == 1 else str(path) for path in paths}


def read_rows(path: Path, check: Check, *, strict: bool = False) -> list[RowText]:
    """The rows below the header, column to cell without the spaces around it; "" where it is short.

    `check` is of the header; `strict` refuses quotes that do not close.

    Raises:
        TableError: missing file, not text, not CSV, a wrong header, or no rows.
    """
    header, *rows = _lines(path, strict) or [[]]
    check(path, header)
    if not rows:
        raise TableError(f"{path}: no rows below the header")
    blank = dict.fromkeys(header, "")
    return [blank | dict(zip(header, row, strict=False)) for row in rows]


def check_columns(path: Path, header: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse a table that is empty, or that lacks columns.

    Raises:
        TableError: which columns it lacks.
    """
    if not header:
        raise TableError(f"{path}: empty file; expected a header with {', '.join(needed)}")
    missing = [name for name in needed if name not in header]
    if missing:
        raise TableError(f"{path}: columns missing: {', '.join(missing)}")


def _lines(path: Path, strict: bool) -> list[list[str]]:
    """The lines that are not blank, the header first."""
    text = read_text(path, most=MOST_ROWS, error=TableError, near=(".csv",))
    if not text.strip():
        return []
    reader = csv.reader(StringIO(text, newline=""), strict=strict)
    try:
        return [[cell.strip() for cell in cells] for cells in reader if cells]
    except csv.Error as reason:
        raise TableError(f"{path}:{reader.line_num}: not CSV: {reason}") from None
