"""Exact folding of ranks that behave alike, by colour refinement over (rank, communicator).

Ranks of one class run the same program with the same durations, meet the same classes in the same
kinds of communicators, and exchange messages with the same classes over the same kind of link (an
equitable partition). All members of a class then have the same times, so that one representative
of each class stands for it exactly: a collective is a maximum over the distinct member classes.

    4 stages x DP 4 x TP 2, all alike            4 classes, the stages
    the same, one rank 25 % slow                 16: the slow rank's replica splits off, and in
                                                 each tensor-parallel pair the two sides split
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Index
from parsim.errors import InputError


class Communicator(NamedTuple):
    """Ranks that meet in collectives; only communicators of equal kind are alike."""

    kind: str
    ranks: tuple[int, ...]


class Edge(NamedTuple):
    """Messages from one rank to another over a class of link."""

    source: int
    target: int
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """`class_of[rank]`, numbered by first member; `representative[c]` is that member."""

    class_of: Index
    representative: Index

    @property
    def num_classes(self) -> int:
        """Number of ranks that have to be simulated."""
        return len(self.representative)

    @property
    def multiplicity(self) -> Index:
        """Number of ranks in each class."""
        return np.bincount(self.class_of, minlength=self.num_classes)


def fold(
    colours: Sequence[Hashable],
    communicators: Sequence[Communicator] = (),
    edges: Sequence[Edge] = (),
) -> Folding:
    """Find the coarsest equitable partition of ranks that refines the given colours.

    Args:
        colours: one per rank: equal only where program and durations are equal.
        communicators: who meets whom.
        edges: who sends to whom.

    Raises:
        InputError: a communicator or an edge names a rank that has no colour.
    """
    _check(len(colours), communicators, edges)
    classes, count = _numbered(np.array(_codes(colours), dtype=np.int64)[:, None])
    surroundings = _Surroundings(len(colours), communicators, edges)
    while count < len(colours):
        finer, now = _numbered(surroundings.signature(classes))
        if now == count:
            break
        classes, count = finer, now
    return _in_order(classes)


def _check(ranks: int, communicators: Sequence[Communicator], edges: Sequence[Edge]) -> None:
    for communicator in communicators:
        for rank in communicator.ranks:
            if not 0 <= rank < ranks:
                raise InputError(
                    f"communicator {communicator.kind!r} names rank {rank}; "
                    f"allowed: 0 to {ranks - 1}, one colour is given for each"
                )
    for edge in edges:
        if not (0 <= edge.source < ranks and 0 <= edge.target < ranks):
            raise InputError(
                f"edge {edge.source} -> {edge.target} names a rank outside 0 to {ranks - 1}; "
                f"give one colour for each rank"
            )


def _codes(values: Sequence[Hashable]) -> list[int]:
    """Equal values to equal small numbers, in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(value, len(seen)) for value in values]


def _numbered(rows: Index) -> tuple[Index, int]:
    """Number equal rows alike, and count the distinct ones; column by column, so exact."""
    number = np.zeros(len(rows), dtype=np.int64)
    distinct = min(len(rows), 1)
    for column in rows.T:
        values, code = np.unique(column, return_inverse=True)
        pairs, number = np.unique(number * len(values) + code, return_inverse=True)
        distinct = len(pairs)
    return number, distinct


def _in_order(classes: Index) -> Folding:
    _, first, classes = np.unique(classes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rename = np.empty_like(order)
    rename[order] = np.arange(len(order))
    return Folding(class_of=rename[classes], representative=first[order])


class _Surroundings:
    """What each rank sees: communicators and messages, as one slot each in a row of its own."""

    def __init__(
        self, ranks: int, communicators: Sequence[Communicator], edges: Sequence[Edge]
    ) -> None:
        self.ranks = ranks
        self.tables = _by_kind_and_size(communicators)
        groups = sum(len(table) for table in self.tables)
        members = [rank for table in self.tables for row in table.tolist() for rank in row]
        repeats = [table.shape[1] for table in self.tables for _ in table]
        self.group = np.repeat(np.arange(groups), repeats)
        self.source = np.array([edge.source for edge in edges], dtype=np.int64)
        self.target = np.array([edge.target for edge in edges], dtype=np.int64)
        self.link = np.array(_codes([edge.link for edge in edges]), dtype=np.int64)
        owner = np.concatenate([np.array(members, dtype=np.int64), self.source, self.target])
        self.owner, self.slot, self.width = owner, *_slots(owner)

    def signature(self, classes: Index) -> Index:
        """A row per rank: its class, then the sorted codes of everything around it."""
        # codes: communicators first, then messages out and in, told apart by their offsets
        groups = self._group_codes(classes)
        base = int(groups.max(initial=0)) + 1
        links = 2 * (int(self.link.max(initial=0)) + 1)
        out = base + classes[self.target] * links + 2 * self.link
        into = base + classes[self.source] * links + 2 * self.link + 1
        rows = np.full((self.ranks, self.width), -1, dtype=np.int64)
        rows[self.owner, self.slot] = np.concatenate([groups[self.group], out, into])
        rows.sort(axis=1)
        return np.concatenate([classes[:, None], rows], axis=1)

    def _group_codes(self, classes: Index) -> Index:
        """Number communicators: equal where kind, size and the members' classes are equal."""
        keys: list[tuple[int, bytes]] = []
        for i, table in enumerate(self.tables):
            members = np.sort(classes[table], axis=1)
            keys += [(i, row.tobytes()) for row in members]
        return np.array(_codes(keys), dtype=np.int64)


def _by_kind_and_size(communicators: Sequence[Communicator]) -> list[Index]:
    """One table per kind and size, a communicator a row."""
    tables: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for kind, ranks in communicators:
        tables.setdefault((kind, len(ranks)), []).append(ranks)
    return [np.array(rows, dtype=np.int64) for rows in tables.values()]


def _slots(owner: Index) -> tuple[Index, int]:
    """A free column for each item in its owner's row, and how many columns that takes."""
    order = np.argsort(owner, kind="stable")
    ordered = owner[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(starts, append=len(ordered))
    slot = np.empty(len(owner), dtype=np.int64)
    slot[order] = np.arange(len(owner)) - np.repeat(starts, lengths)
    return slot, int(lengths.max(initial=0))
