"""The plan that Megatron-LM's arguments describe: degrees, stages, gradients, spared memory."""

from __future__ import annotations

from typing import Any

from parsim.frameworks.reading.arguments import Reader
from parsim.frameworks.reading.megatron_stages import stages_of
from parsim.plan import REPLICAS_OUTSIDE


def plan_of(reader: Reader) -> dict[str, Any]:
    """The plan block: degrees, what runs beside compute, stages, and what memory is spared."""
    pp = reader.count("--pipeline-model-parallel-size")
    plan = _degrees(reader, pp) | {
        "zero_stage": _zero(reader),
        "overlap_grad_reduce": reader.has("--overlap-grad-reduce"),
        "overlap_param_gather": reader.has("--overlap-param-gather"),
    }
    plan |= _gradients(reader, plan["zero_stage"])
    plan |= _placement(reader)
    stages = stages_of(reader, pp)
    chunks, plan = stages.get("v", 1), plan | stages
    if chunks > 1:
        plan["schedule"] = "interleaved_1f1b"
        plan["overlap_p2p"] = not reader.has("--no-overlap-p2p-communication")
    plan |= _recompute(reader)
    plan |= _offload(reader, pp * chunks) | _host_states(reader)
    if plan["zero_stage"]:
        instances = reader.number("--num-distributed-optimizer-instances", 1)
        plan |= {"dp_replicate": instances} if instances > 1 else {}
    return plan


def _degrees(reader: Reader, pp: int) -> dict[str, Any]:
    """Degrees of parallelism, and samples that a replica takes at a time."""
    tp = reader.count("--tensor-model-parallel-size")
    return {
        "tp": tp,
        "pp": pp,
        "cp": reader.count("--context-parallel-size"),
        "ep": reader.number("--expert-model-parallel-size", 1),
        "microbatch_size": reader.number("--micro-batch-size", 1),
        "sequence_parallel": _sequence_parallel(reader, tp),
    }


def _placement(reader: Reader) -> dict[str, Any]:
    """Where ranks stand, and how those of a sequence or an expert divide it, where that is said."""
    plan: dict[str, Any] = {}
    if reader.has("--use-tp-pp-dp-mapping"):
        plan["rank_order"] = list(REPLICAS_OUTSIDE)
    if reader.has("--cp-comm-type"):  # of another word the scenario's reader tells
        plan["cp_comm_type"] = reader.word("--cp-comm-type", "p2p")
    tp = reader.count("--tensor-model-parallel-size")
    degree = reader.number("--expert-tensor-parallel-size", tp)  # tp too where none is given
    if reader.number("--num-experts", 0):
        plan["etp"] = degree
    return plan


def _sequence_parallel(reader: Reader, tp: int) -> bool:
    """Whether tokens are split beside tensor parallelism; alone, Megatron switches that off."""
    given = reader.has("--sequence-parallel")
    if given and tp == 1:
        reader.notes.append(
            "--sequence-parallel is off with --tensor-model-parallel-size 1, as in Megatron-LM"
        )
    return given and tp > 1


def _gradients(reader: Reader, zero_stage: int) -> dict[str, Any]:
    """What gradients are summed and sent in.

    One buffer serves both (`group_params_for_buffers` of Megatron-Core). With --bf16 it is in fp32
    unless --grad-reduce-in-bf16 or main gradients in bf16 say otherwise; with --fp16 it is in 16
    bits unless a flag says fp32 (`validate_args`). Megatron-FSDP has a flag for either.
    """
    wide = reader.has("--accumulate-allreduce-grads-in-fp32")
    narrow = reader.has("--grad-reduce-in-bf16")
    main = reader.word("--main-grads-dtype", "fp32")
    if reader.has("--bf16"):
        wide = not narrow and (wide or main == "fp32")
    summed = sent = "fp32" if wide else "same"
    if zero_stage >= 2 and reader.has("--use-megatron-fsdp"):
        summed = _width(reader.word("--megatron-fsdp-main-grads-dtype", "auto"), summed)
        sent = _width(reader.word("--megatron-fsdp-grad-comm-dtype", "auto"), summed)
    return {"gradient_precision": summed, "reduce_precision": sent}


def _width(dtype: str, usual: str) -> str:
    """A type of Megatron-FSDP's in a plan's words."""
    return {"fp32": "fp32", "auto": usual}.get(dtype, "same")


def _zero(reader: Reader) -> int:
    stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    shared = reader.has("--use-distributed-optimizer")  # Megatron-FSDP asks for it too
    if reader.has("--use-megatron-fsdp"):
        return stages.get(reader.word("--data-parallel-sharding-strategy", "no_shard"), 0)
    if reader.has("--use-torch-fsdp2"):
        return 3
    return int(shared)


def _offload(reader: Reader, stages: int) -> dict[str, Any]:
    """What is kept in the host's memory: whole layers, or modules of all layers of a stage."""
    if reader.has("--fine-grained-activation-offloading") and reader.has("--offload-modules"):
        each = -(-reader.number("--num-layers", 1) // stages)
        return {"offload_layers": each, "offload_modules": reader.given["--offload-modules"]}
    layers = reader.number("--cpu-offloading-num-layers", 0)
    return {"offload_layers": layers} if reader.has("--cpu-offloading") and layers else {}


def _host_states(reader: Reader) -> dict[str, Any]:
    """Whether optimizer states are in the host's memory, with what `validate_args` asks then."""
    if not reader.has("--optimizer-cpu-offload"):
        return {}
    reader.has("--use-precision-aware-optimizer")
    share = reader.real("--optimizer-offload-fraction", 1.0)
    if 0 < share < 1:
        reader.notes.append(
            f"--optimizer-offload-fraction {share:g} is read as 1: all states are on the host"
        )
    return {"optimizer_offload": True} if share > 0 else {}


def _recompute(reader: Reader) -> dict[str, Any]:
    """What backward computes again, in a plan's words."""
    if reader.has("--recompute-activations"):
        return {"recompute": "selective"}
    how = reader.word("--recompute-granularity", "none")
    if how != "selective":
        method = reader.word("--recompute-method", "uniform")
        layers = reader.number("--recompute-num-layers", 1)
        if how == "full" and method == "block":
            return {"recompute": "none", "recompute_layers": layers}
        if how == "full" and layers > 1:
            reader.notes.append(
                f"--recompute-num-layers {layers} with --recompute-method uniform is read as 1: "
                f"every layer's input is kept, not that of each {layers} layers alone"
            )
        return {"recompute": how if how == "full" else "none"}
    if not reader.has("--recompute-modules"):
        return {"recompute": "selective"}
    modules = [name for name in reader.given["--recompute-modules"] if name != "core_attn"]
    core = "core_attn" in reader.given["--recompute-modules"]
    plan: dict[str, Any] = {"recompute": "selective" if core else "none"}
    return {**plan, **({"recompute_modules": modules} if modules else {})}
