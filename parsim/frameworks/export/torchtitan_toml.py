"""torchtitan's TOML of a plan, which its releases before 0.3 read (names of 0.2.2).

    0.2.2  CONFIG_FILE=plan.toml ./run_train.sh      0.3.0  a Python file, see `.torchtitan`

Rules beside those of 0.3.0: sequence parallelism always goes with tensor parallelism, gradients are
reduced in fp32, and experts that are split as the rest is borrow no tensor ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from parsim.frameworks.export.rules import (
    Rules,
    check_rules,
    heading,
    no_host_states,
    no_layers,
    no_placement,
    transformer_of,
    whole_heads,
)
from parsim.frameworks.export.torchtitan import (
    compiled,
    local_batch,
    overlaps,
    parallelism,
    rules,
    says_clip,
    titan_param,
    titan_reduce,
    unsaid,
)
from parsim.frameworks.reading.torchtitan import FLAVOURS
from parsim.plan import Plan
from parsim.scenario import Scenario

OLDER = "0.2.2"
"""The release whose names are written."""

CONVERTERS = {"fp8": "quantize.linear.float8", "mxfp8": "quantize.linear.mx"}
"""What converts linear layers to a precision."""


def torchtitan_toml(scenario: Scenario, plan: Plan) -> str:
    """A TOML file for `CONFIG_FILE=` of torchtitan's releases 0.2.

    Raises:
        PlanError: torchtitan cannot run the plan.
    """
    target = "torchtitan-0.2"
    transformer_of(scenario, target)
    heads = whole_heads(scenario, plan, "it shares out whole heads (pull request 2577)")
    shared = [*no_placement(plan), *no_layers(plan), *no_host_states(plan), heads, *rules(plan)]
    check_rules(target, plan, [*shared, *_toml_rules(plan)])
    lines = [
        *heading(scenario, plan),
        f"# for torchtitan {OLDER}: CONFIG_FILE=<this file> NGPU=<devices of a node> "
        f"./run_train.sh",
        *unsaid(scenario, plan),
        *_section("model", [*_model(scenario), *_converters(plan)]),
        *_section("training", _training(scenario, plan)),
        *_section("parallelism", _parallelism(scenario, plan)),
        *_section("compile", [("enable", compiled(scenario.job.software))]),
        *_section("activation_checkpoint", _recompute(plan)),
        *_recipe(plan),
    ]
    return "\n".join([*lines, ""])


def _toml_rules(plan: Plan) -> Rules:
    yield (
        plan.tp > 1 and not plan.sequence_parallel,
        f"sequence_parallel=false with tp={plan.tp}; {OLDER} has no switch for it, use true or "
        f"export to torchtitan (0.3.0)",
    )
    reduced = titan_reduce(plan)
    yield (reduced != "float32", f"gradients reduced in {reduced}; {OLDER} reduces in fp32")
    shards = (plan.dp_shard if plan.zero_stage else 1) * plan.cp
    yield (
        plan.ep > 1 and plan.etp == plan.tp and shards % plan.ep != 0,
        f"ep={plan.ep} with etp={plan.etp} does not divide dp_shard x cp = {shards}, from which it "
        f"borrows ranks; use etp=1, which borrows tensor ranks too",
    )


def _section(name: str, values: Iterable[tuple[str, object]]) -> list[str]:
    return ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values)]


def _model(scenario: Scenario) -> list[tuple[str, object]]:
    known = {ours: theirs for theirs, ours in FLAVOURS.items()}
    name, flavour = known.get(scenario.job.model.name, ("<your model>", "<its flavor>"))
    return [("name", name), ("flavor", flavour)]


def _converters(plan: Plan) -> list[tuple[str, object]]:
    """What makes products of other precisions, where its release has one."""
    name = CONVERTERS.get(plan.precision.removesuffix("_amp").removesuffix("_rowwise"))
    return [("converters", [name])] if name else []


def _recipe(plan: Plan) -> list[str]:
    """The scales of 8-bit products, where they are other than a tensor's."""
    if not plan.precision.startswith("fp8_rowwise"):
        return []
    return _section("quantize.linear.float8", [("recipe_name", "rowwise")])


def _training(scenario: Scenario, plan: Plan) -> list[tuple[str, object]]:
    clip = scenario.job.clip
    return [
        ("local_batch_size", local_batch(plan)),
        ("global_batch_size", plan.global_batch_size),
        ("seq_len", scenario.job.model.tokens),
        *([("max_norm", clip)] if says_clip(clip) else []),
        ("mixed_precision_param", titan_param(plan)),
        ("mixed_precision_reduce", "float32"),
    ]


def _parallelism(scenario: Scenario, plan: Plan) -> list[tuple[str, object]]:
    layers = scenario.job.model.num_layers
    kept = [pair for pair in parallelism(plan, layers) if pair[0] != "enable_sequence_parallel"]
    experts = [("expert_tensor_parallel_degree", plan.etp)] if plan.ep > 1 else []
    overlap = overlaps(scenario.job.software, plan)
    async_products = [("enable_async_tensor_parallel", True)] if overlap else []
    return [*kept, *async_products, *experts]


def _recompute(plan: Plan) -> list[tuple[str, object]]:
    """Its default selects every second layer; by operators it keeps every second product."""
    option = [("selective_ac_option", "op")] if plan.recompute.name == "SELECTIVE" else []
    return [("mode", plan.recompute.name.lower()), *option]
