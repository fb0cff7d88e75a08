"""Keys of torchtitan's TOML, and which of them were looked at (names and defaults of 0.2.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from parsim.errors import InputError, shown

Table = Mapping[str, Any]

WORDS: Mapping[str, str] = {
    "tp": "parallelism.tensor_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
    "etp": "parallelism.expert_tensor_parallel_degree",
    "dp_replicate": "parallelism.data_parallel_replicate_degree",
    "dp_shard": "parallelism.data_parallel_shard_degree",
    "schedule": "parallelism.pipeline_parallel_schedule",
    "microbatch_size": "training.local_batch_size",
    "global_batch_size": "training.global_batch_size",
    "seq_len": "training.seq_len",
}
"""Keys of a file by the keys of a scenario that errors name."""

HARMLESS = (
    *("checkpoint.", "comm.", "job.", "lr_scheduler.", "metrics.", "profiling.", "validation."),
    *("debug.seed", "model.hf_assets_path", "model.print_after", "model.tokenizer_path"),
    *("optimizer.beta", "optimizer.eps", "optimizer.lr", "optimizer.weight_decay"),
    *("training.data", "training.gc_", "training.seed", "training.steps"),
)
"""Beginnings of keys that change neither a model's size nor a step."""

USUAL: Mapping[str, tuple[object, ...]] = {
    "activation_checkpoint.early_stop": (False,),
    "compile.backend": ("inductor",),
    "debug.deterministic": (False,),
    "fault_tolerance.enable": (False,),
    "memory_estimation.enable": (False,),
    "optimizer.early_step_in_backward": (False,),
    "optimizer.implementation": ("fused",),
    "optimizer.name": ("AdamW", "Adam"),
    "parallelism.context_parallel_load_balancer": ("headtail",),
    "parallelism.disable_loss_parallel": (False,),
    "parallelism.enable_compiled_autograd": (False,),
    "parallelism.expert_parallel_comm_backend": ("standard",),
    "parallelism.pipeline_parallel_first_stage_less_layers": (1,),
    "parallelism.pipeline_parallel_last_stage_less_layers": (1,),
    "parallelism.pipeline_parallel_schedule_csv": ("",),
    "training.dtype": ("float32",),
    "training.enable_cpu_offload": (False,),
}
"""Values of keys that are not read because these are what is taken in any case."""


class Keys:
    """Values by the dotted names of keys, and the names that were asked for."""

    def __init__(self, document: Table) -> None:
        self.document = document
        self.read: set[str] = set()

    def given(self, name: str) -> object:
        """The value of a key; None where it is not given.

        Raises:
            InputError: a part of its name is no table.
        """
        self.read.add(name)
        *sections, key = name.split(".")
        table: Any = self.document
        for number, section in enumerate(sections):
            table = table.get(section, {})
            if not isinstance(table, dict):
                raise InputError(f"[{'.'.join(sections[: number + 1])}] must be a table")
        value: object = table.get(key)
        return value

    def number(self, name: str, default: int) -> int:
        """The whole number of a key."""
        value = self.given(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{name} = {shown(value)} must be a whole number")
        return value

    def real(self, name: str, default: float) -> float:
        """The number of a key that takes fractions; at least 0."""
        value = self.given(name)
        if value is None:
            return default
        number = value if isinstance(value, int | float) and value is not True else -1
        if value is False or number < 0 or not isfinite(number):
            raise InputError(f"{name} = {shown(value)} must be a number of at least 0")
        return float(number)

    def word(self, name: str, default: str) -> str:
        """The text of a key."""
        value = self.given(name)
        return default if value is None else str(value)

    def switch(self, name: str, *, default: bool = False) -> bool:
        """Whether a key is true."""
        value = self.given(name)
        if not isinstance(value, bool | None):
            raise InputError(f"{name} = {shown(value)} must be true or false")
        return default if value is None else value

    def words(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The list of texts of a key, or the parts of a text with commas."""
        value = self.given(name)
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if value is not None and not isinstance(value, list):
            raise InputError(f"{name} = {shown(value)} must be a list")
        return default if value is None else tuple(map(str, value))

    def unread(self) -> list[str]:
        """Names of keys that nobody asked for and whose value is not what is taken in any case."""
        return [
            name
            for name, value in _leaves(self.document, "")
            if name not in self.read and value not in USUAL.get(name, ())
        ]


def harmless(name: str) -> bool:
    """Whether one of torchtitan's keys is known to change neither a model's size nor a step."""
    return name.startswith(HARMLESS)


def _leaves(table: Table, before: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield (f"{before}{key}", value)
