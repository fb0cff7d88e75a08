"""The catalog's device by the name that a driver, a table or a person gives it.

    NVIDIA A100-PCIE-40GB  ->  chip a100, form pcie, 40 GB
    a100-pcie-80gb         ->  chip a100, form pcie, 79.15 GiB by the catalog: another device

A name is a chip, and may have a form and a memory; words that say nothing of either are left out.
With a word that is not understood (NVL, Ti, 3e) it names another part, whose speed is another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError, nearest, shown
from parsim.units import GIB

ADORNMENTS = frozenset((
    *("nvidia", "tesla", "geforce", "hgx", "dgx", "gpu"),
    *("amd", "instinct", "oam"),
    *("hbm2", "hbm2e", "hbm3", "hbm3e"),
    "ac",  # air-cooled, which drivers print of B300
))  # fmt: skip
"""Words of names that tell no two devices of the catalog apart."""
_FORM = re.compile(r"(sxm|pci)(?:\d|e)?")
_MEMORY = re.compile(r"(\d+)gb")
_POWER = re.compile(r"\d+w")
_ROUNDED = 0.1
"""Share by which the size on the box, GB, may exceed what a driver shows, GiB: 24 and 22.03."""


@dataclass(frozen=True, slots=True)
class _Name:
    """What a name says: the words of its chip, its form ("" if it says none), its GB (None)."""

    chip: tuple[str, ...]
    form: str
    memory: float | None

    @classmethod
    def of(cls, text: str) -> _Name:
        words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]
        forms = [match[1] for match in map(_FORM.fullmatch, words) if match]
        sizes = [float(match[1]) for match in map(_MEMORY.fullmatch, words) if match]
        chip = tuple(word for word in words if not _says_more(word))
        return cls(chip, forms[0] if forms else "", sizes[0] if sizes else None)

    def may_be(self, id: str) -> bool:
        """Whether form and memory contradict nothing that the catalog knows of a device."""
        form = _Name.of(id).form
        if self.form and form and self.form != form:
            return False
        memory = load_catalog().device(id).memory / GIB
        return self.memory is None or 0.0 <= self.memory / memory - 1.0 <= _ROUNDED


def _says_more(word: str) -> bool:
    """Whether a word is of anything but the chip."""
    return word in ADORNMENTS or any(kind.fullmatch(word) for kind in (_FORM, _MEMORY, _POWER))


def device_named(name: str) -> str:
    """Id of the catalog's device of this name; of several that it may be, the catalog's first.

    Raises:
        CatalogError: none is, or the name's form or memory is not that of any; the nearest ones.
    """
    if name in load_catalog().devices:
        return name
    meant = _Name.of(name)
    known = list(_of_chip(meant))
    fitting = next((id for id in known if meant.may_be(id)), None)
    if fitting is None:
        near = ", ".join(known or _like(meant))
        raise CatalogError(f"device '{shown(name)}' is not in the catalog; nearest: {near}")
    return fitting


def variant_named(name: str) -> str:
    """Id of the device of this name, or else the first of its chip and form, or of its chip.

    For what is compared with its assumptions told: a variant may have another memory or rate.

    Raises:
        CatalogError: none has that chip; the nearest ones.
    """
    meant = _Name.of(name)
    known = list(_of_chip(meant))
    alike = [id for id in known if _Name.of(id).form == meant.form]
    try:
        return device_named(name)
    except CatalogError:
        if not known:
            raise
        return (alike or known)[0]


def alike_in_form(first: str, second: str) -> bool:
    """Whether two devices of the catalog have one chip and form, whatever their memory."""
    a, b = _Name.of(first), _Name.of(second)
    return (a.chip, a.form) == (b.chip, b.form)


def _like(meant: _Name) -> list[str]:
    """The devices that share a word of the chip, or else those whose ids look like it."""
    devices = load_catalog().devices
    sharing = [id for id in devices if not set(_Name.of(id).chip).isdisjoint(meant.chip)]
    return sharing or nearest("-".join(meant.chip), devices)


def _of_chip(meant: _Name) -> Iterator[str]:
    return (id for id in load_catalog().devices if _Name.of(id).chip == meant.chip)
