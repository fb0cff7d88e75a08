"""The cases of the suite, and the scenario file of each.

A case is run by `parsim run OUT/<case>/scenario.yaml` too. The global batch of a model is the same
in all plans that are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from math import prod
from typing import Any

from executor.suite.models import (
    ADAPTED,
    BERT,
    DEEPSEEK,
    GEMMA,
    GPT2,
    GPT2_EVEN,
    GPT2_LARGE,
    LATENT,
    LLAMA,
    LLAMA_ADAPTED,
    MEDIUM,
    MIXTURE,
    PARALLEL,
    PYTHIA,
    RESNET,
    SMALL,
    TINY,
    TITLES,
    VGG,
    WINDOWED,
)
from parsim.cluster.reader import Catalog
from parsim.cost.software import software_catalog
from parsim.errors import InputError, did_you_mean

CATALOG = "../device.yaml"
"""The calibrated catalog file, seen from the folder of a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase:
    """One plan of one model.

    `model` and `plan` are blocks of a scenario file. Of each `family` one overlay is drawn.
    """

    name: str
    family: str
    model: Mapping[str, Any]
    batch: int
    plan: Mapping[str, Any]
    precision: str = "fp32"

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return prod(int(self.plan.get(axis, 1)) for axis in ("tp", "pp", "cp", "dp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What the scenarios say of the hardware: system, device (None: the system's) and stack.

    `catalog` lists the catalog files, relative to a scenario.
    """

    system: str
    software: str
    device: str | None = None
    catalog: tuple[str, ...] = ()


def before_calibration(kind: str) -> Platform:
    """A platform of the shipped catalog: good for the shapes of a plan, not for its seconds."""
    system = "cpu" if kind == "cpu" else "dgx-h100"
    return Platform(system=system, software=_software(kind))


def calibrated(kind: str, document: Mapping[str, Any], catalog: Catalog) -> Platform:
    """The platform that a calibration wrote.

    Where no links were measured it has a device only; then the links are those of the catalog's
    system with the device that it was made from. One rank uses none of them.
    """
    if document["system"]:
        system, device = str(document["system"]["id"]), None
    else:
        base, device = document["device"]["from"], str(document["device"]["id"])
        known = catalog.systems.values()
        system = next((entry.id for entry in known if entry.device.id == base), "dgx-h100")
    return Platform(system=system, device=device, software=_software(kind), catalog=(CATALOG,))


def _software(kind: str) -> str:
    """The stack that is the executor on this kind of device, where it is known apart."""
    stack = f"executor-{kind}"
    return stack if stack in software_catalog() else "generic"


def scenario_text(case: SuiteCase, platform: Platform) -> str:
    """The case as a scenario file."""
    from ruamel.yaml import YAML

    cluster = {
        "system": platform.system,
        "nodes": 1,
        "devices_per_node": case.world_size,
        **({"device": platform.device} if platform.device else {}),
        **({"catalog": list(platform.catalog)} if platform.catalog else {}),
    }
    document = {
        "description": f"{case.family}: {case.name} of the hardware suite",
        "model": dict(case.model),
        "cluster": cluster,
        "software": platform.software,
        "training": {"global_batch_size": case.batch, "precision": case.precision},
        "plan": dict(case.plan),
    }
    yaml, text = YAML(), StringIO()
    yaml.default_flow_style = False
    yaml.dump(document, text)
    return text.getvalue()


def choose(cases: Sequence[SuiteCase], names: Iterable[str]) -> tuple[SuiteCase, ...]:
    """The named cases in the suite's order; all where none is named.

    Raises:
        InputError: a name that no case has.
    """
    wanted, known = set(names), [case.name for case in cases]
    for name in sorted(wanted - set(known)):
        raise InputError(
            f"case {name!r} is unknown{did_you_mean(name, known)}; allowed: {', '.join(known)}"
        )
    return tuple(case for case in cases if not wanted or case.name in wanted)


Families = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Ways to split a model: a title and what the plan says, by a short name."""

FAMILIES: Families = {
    "one": ("one rank", {}),
    "ddp": ("data parallel", {"dp": 2}),
    "fsdp": ("fully sharded", {"dp": 2, "zero_stage": 3}),
    "tp": ("tensor and sequence parallel", {"tp": 2, "sequence_parallel": True}),
    "gpipe": ("pipeline, GPipe", {"pp": 2, "schedule": "gpipe"}),
    "1f1b": ("pipeline, 1F1B", {"pp": 2, "schedule": "1f1b"}),
    "interleaved": ("interleaved pipeline", {"pp": 2, "v": 2, "schedule": "interleaved_1f1b"}),
    "zb_v": ("pipeline with split backward, ZB-V", {"pp": 2, "schedule": "zb_v"}),
    "cp": ("context parallel, ring", {"cp": 2}),
}
"""Ways to split a model over up to two ranks: title and what the plan says."""

EXPERT_FAMILIES: Families = {
    "ddp": ("mixture of experts, data parallel", {"dp": 2}),
    "ep": ("mixture of experts, expert parallel", {"dp": 2, "ep": 2}),
}
"""Ways to split a mixture of experts."""


def _split(
    model: Mapping[str, Any], batch: int, size: int, families: Families
) -> Iterator[SuiteCase]:
    """One case for each family, with micro-batches of `size` sequences."""
    for key, (title, plan) in families.items():
        yield SuiteCase(
            name=f"{model['name']}-{key}",
            family=title,
            model=model,
            batch=batch,
            plan={**plan, "microbatch_size": size},
        )


QUICK = tuple(_split(TINY, 8, 2, {key: FAMILIES[key] for key in ("one", "ddp", "1f1b")}))
"""Three cases of the smallest size: they show that everything works, not how accurate it is."""


def _named(title: str, *keys: str) -> Families:
    """Some ways to split a model, under titles of its own."""
    return {key: (f"{title}, {FAMILIES[key][0]}", FAMILIES[key][1]) for key in keys}


CPU = (
    *_split(SMALL, 8, 2, FAMILIES),
    *_split(MEDIUM, 4, 1, FAMILIES),
    *_split(MIXTURE, 8, 2, EXPERT_FAMILIES),
    *_split(ADAPTED, 4, 1, _named("LoRA", "one", "ddp", "zb_v")),
    *_split(WINDOWED, 8, 2, _named("windows, normed heads", "one", "tp")),
    *_split(PARALLEL, 8, 2, _named("parallel block", "one", "1f1b")),
    *_split(LATENT, 8, 2, {"ep": ("latent attention, expert parallel", {"dp": 2, "ep": 2})}),
)
"""Each family with two sizes, then models of other kinds; 1,024 tokens a step, four micro-batches
where there is one replica."""


def _one_gpu(
    model: Mapping[str, Any],
    size: int,
    count: int = 1,
    recompute: str = "none",
    precision: str = "bf16",
) -> SuiteCase:
    """One rank: `count` micro-batches of `size` sequences or images."""
    words = [model["name"], f"mb{size}", *([f"x{count}"] if count > 1 else [])]
    words += [] if recompute == "none" else [recompute]
    words += [] if precision == "bf16" else [precision.removeprefix("bf16_")]
    plan = {"microbatch_size": size, "recompute": recompute}
    return SuiteCase(
        name="-".join(words),
        family=TITLES[model["name"]],
        model=model,
        batch=size * count,
        plan=plan,
        precision=precision,
    )


CUDA = (
    _one_gpu(GPT2, 8),
    _one_gpu(GPT2_LARGE, 8),
    _one_gpu(LLAMA, 4),
    _one_gpu(RESNET, 64, precision="bf16_amp"),
    _one_gpu(BERT, 16),
    _one_gpu(LLAMA_ADAPTED, 4),
    _one_gpu(PYTHIA, 4),
    _one_gpu(GEMMA, 2),
    _one_gpu(DEEPSEEK, 2),
    _one_gpu(VGG, 64, precision="bf16_amp"),
    _one_gpu(GPT2, 32),
    _one_gpu(GPT2_LARGE, 16, recompute="full"),
    _one_gpu(LLAMA, 8, recompute="full"),
    _one_gpu(GPT2, 8, count=4),
    _one_gpu(GPT2_LARGE, 16, recompute="selective"),
    _one_gpu(LLAMA, 8, recompute="selective"),
    _one_gpu(GPT2, 8, precision="bf16_amp"),
    _one_gpu(GPT2_LARGE, 4, count=4, precision="bf16_amp"),
    _one_gpu(LLAMA, 2, count=4, precision="bf16_amp"),
    _one_gpu(GPT2, 32, recompute="full"),
    _one_gpu(GPT2_LARGE, 2),
    _one_gpu(LLAMA, 1),
    *(
        replace(case, precision="bf16")
        for case in _split(
            GPT2_EVEN, 8, 2, {key: FAMILIES[key] for key in FAMILIES if key != "one"}
        )
    ),
)
"""Ordered so that a suite that is cut short has had each model, then each variant. The last ones
need two GPUs, or put two ranks on one."""
