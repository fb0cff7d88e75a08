"""Stages with numbers of replicas of their own: what a plan says of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a pipeline whose stages differ.

    `layers` are the model's layers on it, `replicas` how many devices (or tensor-parallel groups)
    take its micro-batches in turn, `tp` the tensor-parallel ranks of each replica (None: the
    plan's). `recompute_layers` of the layers compute everything again in backward (None: as the
    plan's `recompute` says of all). `warmup` are the forwards that each replica begins with (None:
    as few as keep the stages behind it fed). With `late_update` replicas go on while their
    gradients are summed, and take the update behind their next backward (without flush alone).
    """

    layers: int
    replicas: int = 1
    tp: int | None = None
    recompute_layers: int | None = None
    warmup: int | None = None
    late_update: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data, as a scenario writes it."""
        rare = {
            "tp": self.tp,
            "recompute_layers": self.recompute_layers,
            "warmup": self.warmup,
            "late_update": self.late_update or None,
        }
        given = {name: value for name, value in rare.items() if value is not None}
        return {"layers": self.layers, "replicas": self.replicas, **given}


def stage_words(stages: Sequence[Stage], tp: int) -> str:
    """Stages in a few characters: layers 10+6 on replicas 3+1 of tp 2+4."""
    layers = "+".join(str(stage.layers) for stage in stages)
    replicas = "+".join(str(stage.replicas) for stage in stages)
    degrees = [stage.tp or tp for stage in stages]
    tensor = f" of tp {'+'.join(map(str, degrees))}" if {*degrees} != {tp} else ""
    return f"layers {layers} on replicas {replicas}{tensor}"


def least_warmups(counts: Sequence[int], given: Sequence[int | None] = ()) -> tuple[int, ...]:
    """Forwards that the replicas of each stage must begin with at least, (p,).

    w_s = max(floor((r_s + ... + r_{p-1} - 1) / r_s), max over t > s of ceil(w_t r_t / r_s)).

    The second keeps any order from hanging: put F of micro-batch M of stage s at M + a_s and its B
    at M + b_s. All that wait for one another then stand in order if b_s - a_s = w_s r_s, which may
    not grow from stage to stage, also where an update waits for all replicas of a stage.

    Args:
        counts: replicas of each stage.
        given: forwards that stages do begin with; None or nothing: as few as they must.
    """
    return tuple(least for least, _ in _from_behind(counts, given))[::-1]


def warmups(counts: Sequence[int], given: Sequence[int | None] = ()) -> tuple[int, ...]:
    """Forwards that the replicas of each stage begin with: as given, else as few as they must."""
    return tuple(begun for _, begun in _from_behind(counts, given))[::-1]


def _from_behind(counts: Sequence[int], given: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """(at least, indeed) of each stage, the last one first."""
    all_behind, fed = 0, 0
    for count, stated in zip(counts[::-1], (given or [None] * len(counts))[::-1], strict=True):
        all_behind += count
        least = max((all_behind - 1) // count, -(-fed // count))
        begun = least if stated is None else stated
        fed = max(fed, begun * count)
        yield least, begun
