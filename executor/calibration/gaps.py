"""What a calibration could not measure, and why: for its printout, its file, and intervals."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

TIME_OVER = "time over"
OUT_OF_MEMORY = "out of memory"
NOT_REPRESENTABLE = "not representable"
_MEMORY_WORDS = ("out of memory", "not enough memory", "can't allocate memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that was not measured.

    `kind` is what its times would be called in the file, `words` which size of it, `share` how
    much of the targets' predicted steps it carries, from 0 to 1, and `reason` begins with one of
    the three above. `wanted` are sizes of the targets' own, others only help to tell between sizes.
    """

    kind: str
    words: str
    reason: str
    share: float = 0.0
    wanted: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain data for the document."""
        return {"kind": self.kind, "what": self.words, "reason": self.reason, "share": self.share}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice, of a GPU or of the host."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _MEMORY_WORDS)


def unmeasured_kinds(gaps: Iterable[Gap], measured: Container[str]) -> dict[str, str]:
    """Kinds of which nothing at all was measured, with the first reason: what a file keeps."""
    reasons: dict[str, str] = {}
    for gap in gaps:
        if gap.kind not in measured:
            reasons.setdefault(gap.kind, gap.reason)
    return reasons


def by_share(gaps: Iterable[Gap], measured: Container[str]) -> list[Gap]:
    """The gaps, those that matter most first.

    A size that no target has matters only where it is the first of its kind and nothing of the
    kind was measured: the share is the kind's, and told once.
    """
    told: set[str] = set()
    ranked = []
    for gap in sorted(gaps, key=lambda gap: not gap.wanted):
        matters = gap.wanted or (gap.kind not in measured and gap.kind not in told)
        told.add(gap.kind)
        ranked.append(gap if matters else replace(gap, share=0.0))
    return sorted(ranked, key=lambda gap: -gap.share)
