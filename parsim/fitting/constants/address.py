"""Constants by where they live in the catalog, and jobs with other values of them.

    device a100-sxm-80gb gemm_efficiency        cluster/catalog/devices.yaml
    system dgx-a100 network.efficiency          cluster/catalog/systems.yaml
    stack mpt-fsdp-2023 attention_factor.h100.forward      cost/software.yaml

An entry that starts `from` another takes its value unless it writes its own: a constant reaches
every entry whose way up meets it before another writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.errors import CatalogError, did_you_mean
from parsim.fitting.constants.changes import on_system

T = TypeVar("T")

KINDS = {
    "device": ("cluster/catalog/devices.yaml", "devices"),
    "system": ("cluster/catalog/systems.yaml", "systems"),
    "stack": ("cost/software.yaml", ""),
}
"""Kind of an entry -> its file in the package, and the section of the file that holds it."""

PAIR = {"forward": 0, "backward": 1}
"""Names of the two numbers of a (forward, backward) pair."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Address:
    """Where a constant lives: a field of an entry, with dots below it."""

    kind: str
    entry: str
    field: str

    def __str__(self) -> str:
        """The text by which families and reports name it."""
        return f"{self.kind} {self.entry} {self.field}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `KIND ENTRY FIELD` and check that there is such a constant.

        Raises:
            CatalogError: another form, or no such kind, entry or field.
        """
        words = text.split()
        if len(words) != 3 or words[0] not in KINDS:
            form = f"'KIND ENTRY FIELD' with a kind of {', '.join(KINDS)}"
            raise CatalogError(f"constant {text!r} must be {form}")
        address = cls(kind=words[0], entry=words[1], field=words[2])
        entries = written(address.kind)
        if address.entry not in entries:
            hint = did_you_mean(address.entry, entries)
            raise CatalogError(f"constant {text!r}: no {address.kind} {address.entry!r}{hint}")
        address.catalog_value()
        return address

    @property
    def path(self) -> list[str]:
        """The field's words."""
        return self.field.split(".")

    def catalog_value(self, entry: str | None = None) -> float:
        """Today's value, SI units: of the constant's own entry, or of one that inherits it.

        Raises:
            CatalogError: the entry has no such number.
        """
        value = _read(_catalog_record(self.kind, entry or self.entry), self.path)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise CatalogError(f"constant '{self}': no such number; it is {value!r}")
        return float(value)


@cache
def written(kind: str) -> dict[str, dict[str, Any]]:
    """Entries of a kind as their file writes them, without what they inherit."""
    from ruamel.yaml import YAML

    name, section = KINDS[kind]
    text = (Path(str(files("parsim"))) / name).read_text(encoding="utf-8")
    document: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return dict(document[section] if section else document)


def reaches(address: Address, entry: str, writers: Iterable[Address]) -> bool:
    """Whether a constant decides an entry's field, beside other constants that are set too."""
    entries = written(address.kind)
    others = {w.entry for w in writers if (w.kind, w.field) == (address.kind, address.field)}
    at: str | None = entry
    while at is not None and at != address.entry:
        if at in others or _writes(entries[at], address):
            return False
        at = entries[at].get("from")
    return at is not None


def _writes(entry: Mapping[str, Any], address: Address) -> bool:
    """Whether an entry writes a field itself; a stack's field is one [value, reason] pair."""
    first, *rest = address.path
    if first not in entry:
        return False
    if address.kind == "stack" or not rest:
        return True
    return isinstance(entry[first], Mapping) and rest[0] in entry[first]


def entry_of(job: Job, kind: str) -> str:
    """The catalog entry that a job uses of a kind."""
    return {"device": job.device.id, "system": job.system.id, "stack": job.software.id}[kind]


def with_values(job: Job, values: Mapping[Address, float]) -> Job:
    """The job under other values of the constants that reach it.

    A row may have scaled a constant (an eager run moves more) or switched it off (overlap): where
    the job's value is not the catalog's, it is scaled as the catalog's is.
    """
    for address, value in values.items():
        entry = entry_of(job, address.kind)
        if reaches(address, entry, values):
            job = _with(job, address, entry, value)
    return job


def _with(job: Job, address: Address, entry: str, value: float) -> Job:
    """The job with one constant set, or scaled where the row has changed it."""
    stored = address.catalog_value(entry)

    def put(record: T) -> T:
        present = _read(record, address.path)
        new = value if present == stored else value * cast(float, present) / stored
        return _put(record, address.path, new)

    if address.kind == "stack":
        return replace(job, software=put(job.software))
    if address.kind == "device":
        return on_system(job, replace(job.system, device=put(job.device)))
    return on_system(job, put(job.system))


def _catalog_record(kind: str, entry: str) -> object:
    if kind == "stack":
        return software(entry)
    catalog = load_catalog()
    return catalog.device(entry) if kind == "device" else catalog.system(entry)


def _read(record: object, path: list[str]) -> object:
    """What stands at a path; None where nothing does."""
    for word in path:
        try:
            record = _member(record, word)
        except (AttributeError, KeyError, IndexError):
            return None
    return record


def _member(record: object, word: str) -> object:
    """A field of a record, an entry of a mapping, or one number of a pair."""
    if isinstance(record, Mapping):
        return record[word]
    if isinstance(record, Sequence):
        return record[PAIR[word]]
    return getattr(record, word)


def _put(record: T, path: list[str], value: float) -> T:
    """A copy of a record, mapping or pair with another number at a path."""
    word, *rest = path
    new = _put(_member(record, word), rest, value) if rest else value
    if isinstance(record, Mapping):
        return cast(T, {**record, word: new})
    if isinstance(record, Sequence):
        return cast(T, tuple(new if i == PAIR[word] else old for i, old in enumerate(record)))
    return cast(T, replace(cast(Any, record), **{word: new}))
