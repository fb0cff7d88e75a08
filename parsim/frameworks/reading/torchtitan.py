"""torchtitan's TOML (releases before its Python configurations) as a described job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.errors import InputError, alternatives, shown
from parsim.frameworks.reading.described_job import DescribedJob

FLAVOURS = {
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3.1-405b",
}
"""parsim's name of torchtitan's model and flavor."""

SCHEDULES = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "interleaved1f1b": "interleaved_1f1b",
    "zbvzerobubble": "zb_v",
    "loopedbfs": "looped_bfs",
    "dualpipev": "dualpipe_v",
}
RECOMPUTED = {"none": "none", "selective": "selective", "full": "full"}

Section = Mapping[str, Any]


def torchtitan_job(document: Mapping[str, Any]) -> DescribedJob:
    """The job of a TOML file.

    Raises:
        InputError: a model that parsim does not know, or a key of the wrong kind.
    """
    training, parallel = _section(document, "training"), _section(document, "parallelism")
    plan = _plan(parallel, _section(document, "activation_checkpoint"))
    local = _number(training, "local_batch_size", _number(training, "batch_size", 8))
    replicas = plan["dp_replicate"] * plan["dp_shard"]
    stated = _number(training, "global_batch_size", -1)
    batch = stated if stated > 0 else local * replicas
    if plan["pp"] > 1:
        plan["microbatch_size"] = _number(parallel, "pipeline_parallel_microbatch_size", 1)
    else:
        plan["microbatch_size"] = local
    model: dict[str, Any] = {"name": _model(_section(document, "model"))}
    if "seq_len" in training:
        model["seq_len"] = _number(training, "seq_len", 8192)
    notes = [] if stated > 0 else [f"global_batch_size = local x replicas = {batch}"]
    return DescribedJob(
        model=model,
        plan=plan,
        global_batch_size=batch,
        precision="bf16_amp" if plan["zero_stage"] == 3 else "fp32",
        software="torchtitan",
        notes=notes,
    )


def _plan(parallel: Section, recompute: Section) -> dict[str, Any]:
    shard = _number(parallel, "data_parallel_shard_degree", -1)
    if shard < 1:
        raise InputError(
            "parallelism.data_parallel_shard_degree = -1 means the ranks that are left, which the "
            "file does not say; write the number"
        )
    mode = str(recompute.get("mode", "selective")).lower()
    if mode not in RECOMPUTED:
        raise InputError(
            f"activation_checkpoint.mode '{shown(mode)}' is unknown{alternatives(mode, RECOMPUTED)}"
        )
    pp = _number(parallel, "pipeline_parallel_degree", 1)
    tp = _number(parallel, "tensor_parallel_degree", 1)
    plan: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "cp": _number(parallel, "context_parallel_degree", 1),
        "ep": _number(parallel, "expert_parallel_degree", 1),
        "dp_replicate": _number(parallel, "data_parallel_replicate_degree", 1),
        "dp_shard": shard,
        "zero_stage": 3 if shard > 1 else 0,
        "sequence_parallel": tp > 1 and parallel.get("enable_sequence_parallel", True) is True,
        "recompute": RECOMPUTED[mode],
    }
    if pp > 1:
        name = str(parallel.get("pipeline_parallel_schedule", "1F1B")).lower()
        if name not in SCHEDULES:
            raise InputError(
                f"parallelism.pipeline_parallel_schedule '{shown(name)}' is unknown"
                f"{alternatives(name, SCHEDULES)}"
            )
        plan["schedule"] = SCHEDULES[name]
        if SCHEDULES[name] in ("interleaved_1f1b", "looped_bfs"):
            plan["v"] = 2  # torchtitan's choice where no layers per stage are given
    return plan


def _model(model: Section) -> str:
    name, flavour = str(model.get("name", "")), str(model.get("flavor", ""))
    if (name, flavour) not in FLAVOURS:
        known = [f"{first} {second}" for first, second in FLAVOURS]
        raise InputError(
            f"model '{shown(name)} {shown(flavour)}' is unknown; allowed: {', '.join(known)}: for "
            f"others write the scenario's model block yourself"
        )
    return FLAVOURS[name, flavour]


def _section(document: Mapping[str, Any], name: str) -> Section:
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise InputError(f"[{name}] must be a table")
    return section


def _number(section: Section, name: str, default: int) -> int:
    value = section.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} = {shown(value)} must be a whole number")
    return value
