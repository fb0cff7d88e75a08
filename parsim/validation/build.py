"""From a measured run to what parsim predicts: model, cluster, software and plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import Catalog, load_catalog
from parsim.cost.job import Job
from parsim.cost.software import Software, software
from parsim.errors import InputError, did_you_mean
from parsim.model.huggingface import FAMILY_FLAGS
from parsim.model.transformer import TransformerSpec, build_transformer, with_options
from parsim.plan import Plan, Recompute
from parsim.plan.record import PRECISIONS
from parsim.plan.rules import SCHEDULE_NAMES, SPLIT, V_SHAPED, violation
from parsim.sim.action_times import with_action_times
from parsim.validation.assumptions import (
    GPT_VOCABULARY,
    VOCABULARY,
    Assumptions,
    assumptions_for,
    software_of_experts,
)
from parsim.validation.known_models import known_mixture
from parsim.validation.recipes import Recipe, recipe_of
from parsim.validation.schema import MeasuredRun, RowSkipped

ELEMENTWISE_EAGER = 1.8
"""An eager run of a compiled stack moves this much more elementwise traffic (torchtitan rows)."""


RACK, RACK_USED = 72, 64
"""Devices of an NVL72 rack, and those that jobs of 128, 256, ... devices take of each.

Source: performance recipes of Megatron-Bridge, NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=64 beside
NVLINK_DOMAIN_SIZE=72."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run made predictable; `notes` say what had to be assumed for it."""

    run: MeasuredRun
    job: Job
    plan: Plan
    notes: tuple[str, ...]


def build_case(run: MeasuredRun) -> Case:
    """Build model, system, software and plan of a measured run.

    Raises:
        RowSkipped: something about the run cannot be simulated yet.
    """
    assumed, name, notes = assumptions_for(run.stack)
    base = known_mixture(run.model)
    if run.n_experts and not (base and base.layer_pattern):
        name = software_of_experts(run.stack, run.release) or name
    recipe = recipe_of(run) if run.n_experts else None
    stack = _followed(_dropping(_software(software(name), run), run), recipe)
    try:
        cluster, said = _cluster(run, load_catalog())
        model = build_transformer(_predicting(_spec(run, assumed, stack), recipe))
    except InputError as reason:
        raise RowSkipped(str(reason)) from None
    job = Job(model=model, cluster=cluster, software=stack)
    said = (*said, *_assumed_of_experts(run))
    return Case(
        run=run,
        job=job,
        plan=_timed(job, _laid_out(_plan(run, assumed, stack, recipe), job, recipe)),
        notes=(*notes, *said),
    )


def _assumed_of_experts(run: MeasuredRun) -> tuple[str, ...]:
    """What is taken from the catalog, and how experts lie, where the row does not say."""
    base = known_mixture(run.model)
    notes: tuple[str, ...] = ()
    if base is not None:
        notes = (f"model {run.model!r}: sizes that are not stated are those of {base.name}",)
    if run.n_experts and run.tp > 1 and run.etp is None:
        return (*notes, f"etp is not stated: experts are whole (etp=1) although tp={run.tp}")
    return notes


def _timed(job: Job, plan: Plan) -> Plan:
    """Searched schedules are searched for parsim's own times; an illegal plan is told later."""
    if violation(plan, job.model, job.cluster) is not None:
        return plan
    return with_action_times(job, plan)


def _predicting(spec: TransformerSpec, recipe: Recipe | None) -> TransformerSpec:
    """The whole model with its recipe's layers for further tokens; a trimmed one as it is."""
    base = known_mixture(spec.name)
    if recipe is None or base is None or spec.num_layers != base.num_layers:
        return spec
    return with_options(spec, predicted_tokens=recipe.predicted_tokens)


def _laid_out(plan: Plan, job: Job, recipe: Recipe | None) -> Plan:
    """The plan with its recipe's cut into stages."""
    if recipe is None:
        return plan
    return replace(plan, stage_layers=recipe.stage_layers(job.model.num_layers, plan.num_stages))


def _dropping(stack: Software, run: MeasuredRun) -> Software:
    """Experts padded to a capacity: the host knows all sizes and waits for no counts."""
    return replace(stack, expert_launch=stack.launch_cost) if run.token_drop else stack


def _followed(stack: Software, recipe: Recipe | None) -> Software:
    """The stack as a published recipe sets it up."""
    if recipe is None:
        return stack
    return replace(
        stack,
        expert_overlap={"default": 1.0 if recipe.overlap else 0.0},
        expert_dispatcher=recipe.dispatcher,
        graphs=recipe.graphs,
        fused_experts=recipe.fused_mlp,
    )


def _software(stack: Software, run: MeasuredRun) -> Software:
    if run.torch_compile is False and stack.id == "torchtitan":
        stack = replace(stack, traffic=stack.traffic * ELEMENTWISE_EAGER, keeps_output=True)
    if run.overlap is not None and "tp" not in run.overlap:
        stack = replace(stack, tp_overlap=False)
    return stack


def _cluster(run: MeasuredRun, catalog: Catalog) -> tuple[Cluster, tuple[str, ...]]:
    """The catalog's system, or one made from gpu_type, gpus_per_node and the network's rate."""
    device, notes = _device(run.gpu_type, catalog)
    if run.system in catalog.systems:
        system = catalog.systems[run.system]
    else:
        system = replace(_system_with(device, catalog), stands_for=run.system)
        notes = (*notes, f"unknown system {run.system!r}: built from {system.id}")
    system = _sized(replace(system, device=catalog.devices[device]), run)
    if system.devices_per_node == RACK and run.n_gpus % RACK and run.n_gpus % RACK_USED == 0:
        system = _used(system, RACK_USED)
        notes = (*notes, f"jobs of a power of two take {RACK_USED} of a rack's {RACK} devices")
    nodes, rest = divmod(run.n_gpus, system.devices_per_node)
    if nodes == 0:
        return Cluster(system=replace(system, devices_per_node=run.n_gpus), num_nodes=1), notes
    if rest:
        raise RowSkipped(f"n_gpus={run.n_gpus} does not fill nodes of {system.devices_per_node}")
    return Cluster(system=system, num_nodes=nodes), notes


def _used(system: System, devices: int) -> System:
    """A node of which a job takes some devices, each with its interfaces."""
    if system.network is not None:
        share = devices / system.devices_per_node
        nics = max(round(system.network.nics_per_node * share), 1)
        system = replace(system, network=replace(system.network, nics_per_node=nics))
    return replace(system, devices_per_node=devices)


def _device(gpu_type: str, catalog: Catalog) -> tuple[str, tuple[str, ...]]:
    """The catalog's device, or the nearest variant: same chip and form, or same chip."""
    if gpu_type in catalog.devices:
        return gpu_type, ()
    for same in (_chip_and_form, _chip):
        for known in catalog.devices:
            if same(known) == same(gpu_type):
                return known, (f"unknown device {gpu_type!r}: taken as {known}",)
    near = did_you_mean(gpu_type, catalog.devices)
    raise RowSkipped(f"device {gpu_type!r} is not in the catalog{near}")


def _chip_and_form(device: str) -> str:
    """Chip and form of a device id: a100-sxm of a100-sxm-40gb."""
    return "-".join(device.split("-")[:2])


def _chip(device: str) -> str:
    """Chip of a device id: a100 of a100-sxm-40gb, rtx-4090 of rtx-4090-24gb."""
    return "-".join(device.split("-")[: 2 if device.startswith("rtx-") else 1])


def _system_with(device: str, catalog: Catalog) -> System:
    """The catalog's first system that is made of this chip; else a node of PCIe cards."""
    for system in catalog.systems.values():
        if _chip_and_form(system.device.id) == _chip_and_form(device):
            return system
    return catalog.systems["a100-pcie-node"]


def _sized(system: System, run: MeasuredRun) -> System:
    # an NVL72 rack is one NVLink domain, whatever its trays hold
    if system.devices_per_node < 72 and run.gpus_per_node != system.devices_per_node:
        system = replace(system, devices_per_node=run.gpus_per_node)
    if run.internode_gbit is not None and system.network is not None:
        rate = run.internode_gbit * 1e9 / 8.0
        network = replace(system.network, nic_bandwidth=rate / system.network.nics_per_node)
        system = replace(system, network=network)
    return system


def model_family(run: MeasuredRun) -> str:
    """Family by the model's name; GPT where it says nothing else."""
    name = run.model.lower().replace(" ", "").replace("-", "").replace("_", "")
    for family in ("llama2", "llama3", "llama", "mistral", "nemotron", "mpt", "bert"):
        if family in name:
            return "llama3" if family == "llama" else family
    if run.n_kv_heads != run.n_heads:
        return "llama3"
    return "gpt"


def _spec(run: MeasuredRun, assumed: Assumptions, stack: Software) -> TransformerSpec:
    if run.n_experts:
        return _mixture(run, stack)
    family = model_family(run)
    if family == "bert":
        raise RowSkipped("BERT rows have no stated head; not yet read from tables")
    llama = family in ("llama2", "llama3", "mistral")
    plain = family in ("mpt", "nemotron") or llama
    return TransformerSpec(
        name=run.model,
        num_layers=run.n_layers,
        hidden_size=run.hidden_size,
        num_attention_heads=run.n_heads,
        num_key_value_heads=run.n_kv_heads,
        head_dim=run.hidden_size // run.n_heads,
        ffn_hidden_size=run.ffn_hidden_size,
        vocab_size=run.vocab_size or VOCABULARY.get(family, GPT_VOCABULARY),
        seq_len=run.seq_len,
        positions=0 if plain else run.seq_len,
        rope=llama or family == "nemotron",
        rms_norm=llama,
        gated_mlp=llama,
        qkv_bias=not plain,
        projection_bias=not plain,
        mlp_bias=not plain,
        tied_embeddings=not (llama or family == "nemotron"),
        causal=True,
        fused_attention=stack.fused_attention
        if run.flash_attention is None
        else run.flash_attention,
        dropout=assumed.dropout,
    )


def _mixture(run: MeasuredRun, stack: Software) -> TransformerSpec:
    """A mixture of experts: the catalog's by its name, with the row's sizes, or Mixtral's kind.

    A known model with fewer layers is one trimmed for a benchmark; of its plain first layers one
    is left (SimuMax: "1 dense layer + MoE layers").
    """
    base = known_mixture(run.model)
    fused = stack.fused_attention if run.flash_attention is None else run.flash_attention
    sizes: dict[str, Any] = {
        "name": run.model,
        "num_layers": run.n_layers,
        "hidden_size": run.hidden_size,
        "num_attention_heads": run.n_heads,
        "num_key_value_heads": run.n_kv_heads,
        "ffn_hidden_size": run.ffn_hidden_size,
        "vocab_size": run.vocab_size or VOCABULARY["llama2"],
        "seq_len": run.seq_len,
        "num_experts": run.n_experts,
        "experts_per_token": run.moe_topk,
        "expert_ffn_hidden_size": run.moe_ffn_hidden_size or run.ffn_hidden_size,
        "fused_attention": fused,
    }
    if base is None:
        head = run.hidden_size // run.n_heads
        return TransformerSpec(**{**FAMILY_FLAGS["mixtral"], **sizes, "head_dim": head})
    if run.n_layers < base.num_layers:
        sizes["dense_layers"] = min(base.dense_layers, 1)
    return with_options(base, **sizes)


def _plan(
    run: MeasuredRun, assumed: Assumptions, stack: Software, recipe: Recipe | None = None
) -> Plan:
    zero = _zero_stage(run, assumed)
    replicate, shard = (run.dp, 1) if zero == 0 else _shards(run)
    overlap = run.overlap
    data = stack.overlap_grad_reduce if overlap is None else bool({"dp", "fsdp"} & overlap)
    return Plan(
        tp=run.tp,
        pp=run.pp,
        dp_replicate=replicate,
        dp_shard=shard,
        cp=run.cp,
        ep=run.ep,
        etp=run.etp or 1,
        microbatch_size=run.microbatch_size,
        num_microbatches=run.num_microbatches,
        schedule=_schedule(run),
        v=_chunks(run),
        zero_stage=zero,
        sequence_parallel=run.tp > 1
        and (assumed.sequence_parallel if run.sequence_parallel is None else run.sequence_parallel),
        recompute=_recompute(run, assumed),
        recompute_modules=recipe.recompute if recipe and not run.recompute else (),
        precision=_precision(run, assumed),
        gradient_precision="same"
        if run.precision == "bf16" and zero == 3
        else stack.gradient_precision,
        reduce_precision="same"
        if run.precision == "bf16" and zero == 3
        else stack.reduce_precision,
        overlap_grad_reduce=data,
        overlap_param_gather=data,
        overlap_p2p=stack.overlap_p2p if overlap is None else "p2p" in overlap,
        scatter_p2p=stack.scatter_p2p,
    )


def _zero_stage(run: MeasuredRun, assumed: Assumptions) -> int:
    stage = assumed.zero_stage if run.zero_stage is None else run.zero_stage
    if run.fsdp_size > 1:
        stage = 3
    return stage if run.dp * run.cp > 1 else 0


def _shards(run: MeasuredRun) -> tuple[int, int]:
    shard = min(run.fsdp_size, run.dp) if run.fsdp_size > 1 else run.dp
    if run.dp % shard:
        raise RowSkipped(f"fsdp_size={run.fsdp_size} does not divide dp={run.dp}")
    return run.dp // shard, shard


def _schedule(run: MeasuredRun) -> str:
    stated = run.schedule
    if stated in (None, "none"):
        return "interleaved_1f1b" if run.v > 1 and run.pp > 1 else "1f1b"
    if stated == "1f1b" and run.v > 1:
        raise RowSkipped(f"schedule 1f1b contradicts vpp={run.v}")
    if stated not in SCHEDULE_NAMES:
        raise RowSkipped(f"schedule {stated} is not yet simulated")
    if (stated in V_SHAPED and run.v > 2) or (stated in SPLIT - V_SHAPED and run.v > 1):
        raise RowSkipped(f"schedule {stated} contradicts vpp={run.v}")
    return stated if run.pp > 1 else "1f1b"


def _chunks(run: MeasuredRun) -> int:
    """Chunks of a rank; those of a V are two, whether the row says so or not."""
    if run.pp == 1:
        return 1
    return 2 if run.schedule in V_SHAPED else run.v


def _recompute(run: MeasuredRun, assumed: Assumptions) -> Recompute:
    name = run.recompute or assumed.recompute
    if name.upper() not in Recompute.__members__:
        raise RowSkipped(f"recompute={name!r} is unknown; allowed: none, selective, full")
    return Recompute[name.upper()]


def _precision(run: MeasuredRun, assumed: Assumptions) -> str:
    name = run.precision or assumed.precision
    if name not in PRECISIONS:
        raise RowSkipped(f"precision {name!r} is not yet simulated")
    return name
