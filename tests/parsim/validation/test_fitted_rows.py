"""A fit sees a documented minority of the shipped rows; reports tell these rows from the others."""

from __future__ import annotations

from collections import Counter

from parsim.validation.fitted_rows import Source, family_sources, source_rows


def test_a_fit_sees_a_minority_of_every_source() -> None:
    for source in _sources():
        rows = source_rows(source)
        assert rows, source.name
        if "split" not in source.where:
            assert sum(source.used(rows)) < 0.5 * len(rows), source.name


def test_of_a_table_that_was_split_beforehand_a_fit_sees_its_part_alone() -> None:
    """The part named for it, and less than half of the table."""
    split = [source for source in _sources() if "split" in source.where]
    assert split
    assert {source.where["split"] for source in split if source.every} == {"fit"}
    seen = Counter[str]()
    for source in split:
        seen[source.table] += sum(source.used(source_rows(source)))
    for table, used in seen.items():
        whole = source_rows(Source(name="all", table=table, every=0))
        assert 0 < used < 0.5 * len(whole)


def _sources() -> list[Source]:
    return [source for sources in family_sources().values() for source in sources]


def test_rows_by_index_and_by_cell() -> None:
    rows = [{"tp": str(tp), "b": str(b)} for tp in (1, 2, 4) for b in (1, 1, 1, 1)]
    by_row = Source(name="s", table="t", every=5)
    assert [i for i, used in enumerate(by_row.used(rows)) if used] == [0, 5, 10]
    by_cell = Source(name="s", table="t", every=2, of=("tp",), rows=3)
    assert [i for i, used in enumerate(by_cell.used(rows)) if used] == [0, 3, 8, 11]
    assert not any(Source(name="s", table="t", every=0).used(rows))
    assert Source(name="s", table="t", every=1, where={"tp": "2"}).has(rows[5])
    assert not Source(name="s", table="t", every=1, where={"tp": "2"}).has(rows[0])
