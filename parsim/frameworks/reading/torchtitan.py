"""torchtitan's TOML (releases before its Python configurations) as a described job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parsim.cost.job import CLIP
from parsim.errors import InputError, alternatives, shown
from parsim.frameworks.reading.described_job import DescribedJob
from parsim.frameworks.reading.torchtitan_keys import WORDS, Keys, harmless
from parsim.frameworks.reading.unread import unread_notes
from parsim.frameworks.torch_schedules import CHUNKED, TORCH_SCHEDULES, USUAL_CHUNKS
from parsim.model.reader import load_model_catalog

FLAVOURS = {
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3.1-405b",
}
"""parsim's name of torchtitan's model and flavor."""

SCHEDULES = {word.lower(): name for name, word in TORCH_SCHEDULES.items()}
"""parsim's name of each schedule by torch's in small letters, for files write it in any case."""
RECOMPUTED = ("none", "selective", "full")
RESHARD = "parallelism.fsdp_reshard_after_forward"
RESHARDED = ("default", "always", "never")
LAYERS_PER_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
ROTATED = {"allgather": "all_gather", "alltoall": "p2p"}
"""parsim's name of what context-parallel ranks exchange: pieces go round by all-to-all."""


def torchtitan_job(document: Mapping[str, Any], devices: int | None = None) -> DescribedJob:
    """The job of a TOML file.

    Args:
        document: what the file says.
        devices: all that there are, where known: those that are left are for shards.

    Raises:
        InputError: a model that parsim does not know, or a key of the wrong kind.
    """
    keys = Keys(document)
    name = _model(keys)
    model = {"name": name, "seq_len": keys.number("training.seq_len", 2048)}
    plan = _plan(keys, load_model_catalog()[name].num_layers, devices)
    batch, notes = _batch(keys, plan)
    quantized = _quantized(keys)
    precision = _precision(keys, plan, quantized)
    notes += _unconverted(keys, precision)
    software, clip = _software(keys, plan["tp"]), keys.real("training.max_norm", CLIP)
    return DescribedJob(
        model=model,
        plan=plan,
        global_batch_size=batch,
        precision=precision,
        clip=None if clip == CLIP else clip,
        software=software,
        notes=(
            *notes,
            *_gathered_again(keys, plan),
            *_every_second_layer(keys),
            *unread_notes(keys.unread(), harmless, "key"),
        ),
        words=WORDS,
    )


def _unconverted(keys: Keys, precision: str) -> Iterator[str]:
    """That products in 8 bit are left out where all others are fp32."""
    if keys.words("model.converters") and precision == "fp32":
        yield "model.converters are left out: parsim has no 8-bit products beside fp32 ones"


def _batch(keys: Keys, plan: dict[str, Any]) -> tuple[int, list[str]]:
    """Sequences of a step, with a note where they follow; the plan gets those of a micro-batch."""
    local = keys.number("training.local_batch_size", keys.number("training.batch_size", 8))
    of_stages = keys.number("parallelism.pipeline_parallel_microbatch_size", 1)
    plan["microbatch_size"] = of_stages if plan["pp"] > 1 else local
    stated = keys.number("training.global_batch_size", -1)
    batch = stated if stated > 0 else local * plan["dp_replicate"] * plan["dp_shard"]
    return batch, [] if stated > 0 else [f"global_batch_size = local x replicas = {batch}"]


def _plan(keys: Keys, layers: int, devices: int | None) -> dict[str, Any]:
    plan: dict[str, Any] = {
        axis: keys.number(WORDS[axis], 1) for axis in ("tp", "pp", "cp", "ep", "dp_replicate")
    }
    plan["dp_shard"] = _shards(keys, plan, devices)
    sequences = keys.switch("parallelism.enable_sequence_parallel", default=True)
    plan["sequence_parallel"] = plan["tp"] > 1 and sequences
    plan["zero_stage"] = _zero(keys, plan)
    plan["recompute"] = _recompute(keys)
    if keys.word("training.mixed_precision_reduce", "float32") == "bfloat16":
        plan["reduce_precision"] = "same"
    rotated = keys.word("parallelism.context_parallel_rotate_method", "")
    if plan["cp"] > 1 and rotated in ROTATED:
        plan["cp_comm_type"] = ROTATED[rotated]
    split = keys.number(WORDS["etp"], 1)
    plan |= {"etp": split} if plan["ep"] > 1 and split > 1 else {}
    return plan | (_pipeline(keys, layers, plan["pp"]) if plan["pp"] > 1 else {})


def _shards(keys: Keys, plan: Mapping[str, int], devices: int | None) -> int:
    """Ranks that share out parameters: the number of the file, or those that are left."""
    shards = keys.number(WORDS["dp_shard"], -1)
    if shards > 0:
        return shards
    told = f"{WORDS['dp_shard']} = {shards} means the ranks that are left"
    if devices is None:
        raise InputError(f"{told}, which the file does not say; give --nodes")
    ranks = 1
    for axis in ("tp", "pp", "cp", "dp_replicate"):
        if plan[axis] < 1:
            raise InputError(f"{WORDS[axis]} = {plan[axis]} must be at least 1")
        ranks *= plan[axis]
    if devices % ranks:
        raise InputError(f"{told}, but the other degrees, {ranks}, do not divide {devices} devices")
    return devices // ranks


def _zero(keys: Keys, plan: Mapping[str, int]) -> int:
    """FSDP is ZeRO-3 where parameters are let go behind their forward, and ZeRO-2 where they stay.

    With a pipeline it is ZeRO-1: torch's runtime reduces gradients after the last micro-batch alone
    (`backward_maybe_with_nosync` of torch/distributed/pipelining/stage.py), and by default
    parameters are gathered once a step (`parallelize.py`). Ranks of a sequence share too.
    """
    policy = keys.word(RESHARD, "default")
    if policy not in RESHARDED:
        raise InputError(f"{RESHARD} '{shown(policy)}' is unknown{alternatives(policy, RESHARDED)}")
    if plan["dp_shard"] * plan["cp"] == 1:
        return 0
    if plan["pp"] > 1:
        return 1
    return 2 if policy == "never" else 3


def _gathered_again(keys: Keys, plan: Mapping[str, int]) -> list[str]:
    """A note where every forward of a pipeline lets parameters go, which no ZeRO stage says.

    The backward gathers them and keeps them for the next forward (`set_reshard_after_backward`),
    and gradients stay whole in any case.
    """
    always = keys.word(RESHARD, "default") == "always"
    if not (always and plan["pp"] > 1 and plan["zero_stage"]):
        return []
    return [f"{RESHARD} = always: a pipeline's gathers for each micro-batch are left out"]


def _recompute(keys: Keys) -> str:
    mode = keys.word("activation_checkpoint.mode", "selective").lower()
    if mode not in RECOMPUTED:
        raise InputError(
            f"activation_checkpoint.mode '{shown(mode)}' is unknown{alternatives(mode, RECOMPUTED)}"
        )
    return mode


def _every_second_layer(keys: Keys) -> list[str]:
    """A note where whole layers are recomputed, of which parsim's selective mode knows nothing."""
    option = keys.word("activation_checkpoint.selective_ac_option", "2")
    if _recompute(keys) != "selective" or option == "op":
        return []
    return [f"activation_checkpoint.selective_ac_option = {shown(option)} is taken as op"]


def _pipeline(keys: Keys, layers: int, pp: int) -> dict[str, Any]:
    name = keys.word(WORDS["schedule"], "1F1B").lower()
    if name not in SCHEDULES:
        raise InputError(
            f"parallelism.pipeline_parallel_schedule '{shown(name)}' is unknown"
            f"{alternatives(name, SCHEDULES)}"
        )
    chunks = {"v": _chunks(keys, layers, pp)} if SCHEDULES[name] in CHUNKED else {}
    return {"schedule": SCHEDULES[name], **chunks}


def _chunks(keys: Keys, layers: int, pp: int) -> int:
    """Chunks of a rank: two, or what the layers of a stage make (`pipeline_llm`).

    Embedding and head stand for layers of the first and last stage.

    Raises:
        InputError: the stages are no multiple of the ranks.
    """
    each = keys.number(LAYERS_PER_STAGE, 0)
    if each < 1:
        return USUAL_CHUNKS
    ends = (f"parallelism.pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
    weight = layers + sum(keys.number(end, 1) for end in ends)
    stages = -(-weight // each)
    if stages % pp or stages < 2 * pp:
        raise InputError(
            f"{LAYERS_PER_STAGE} = {each} makes {stages} stages of {weight} layers, embedding and "
            f"head among them; allowed: a multiple of {WORDS['pp']} = {pp}, at least {2 * pp}"
        )
    return stages // pp


def _quantized(keys: Keys) -> str:
    """The precision of products that a converter of the model makes, none where there is none."""
    for name in keys.words("model.converters"):
        if name.endswith("float8"):
            older = keys.word("float8.recipe_name", "tensorwise")
            recipe = keys.word("quantize.linear.float8.recipe_name", older)
            return "fp8_rowwise" if recipe.startswith("rowwise") else "fp8"
        if name in ("mx", "quantize.linear.mx"):
            return "mxfp8"
    return ""


def _precision(keys: Keys, plan: Mapping[str, Any], quantized: str) -> str:
    """Mixed where parameters are sharded, or replicated alone (`maybe_enable_amp`), else fp32.

    Parameters that stay gathered are 16-bit copies beside the shards of the fp32 ones.
    """
    mixed = plan["zero_stage"] > 0 or plan["tp"] == plan["pp"] == 1
    if not mixed or keys.word("training.mixed_precision_param", "bfloat16") == "float32":
        return "fp32"
    if plan["zero_stage"] in (1, 2) or quantized in ("fp8_rowwise", "mxfp8"):
        return quantized or "bf16"
    return f"{quantized or 'bf16'}_amp"


def _software(keys: Keys, tp: int) -> str | dict[str, Any]:
    """The stack, with the switches that the file sets otherwise than its usual jobs."""
    older = keys.switch("training.compile")
    parts = keys.words("compile.components", ("model", "loss"))
    compiled = keys.switch("compile.enable", default=older) and "model" in parts
    overlapped = keys.switch("parallelism.enable_async_tensor_parallel") and compiled and tp > 1
    switches: dict[str, Any] = {} if compiled else {"compile": False}
    switches |= {"tp_overlap": True} if overlapped else {}
    return {"name": "torchtitan", **switches} if switches else "torchtitan"


def _model(keys: Keys) -> str:
    name, flavour = keys.word("model.name", ""), keys.word("model.flavor", "")
    if (name, flavour) not in FLAVOURS:
        known = [f"{first} {second}" for first, second in FLAVOURS]
        raise InputError(
            f"model '{shown(name)} {shown(flavour)}' is unknown; allowed: {', '.join(known)}: for "
            f"others write the scenario's model block yourself"
        )
    return FLAVOURS[name, flavour]
