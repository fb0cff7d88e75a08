"""What a table does not say: per software stack, the same for every row of the stack.

Each default is printed with its reason by `parsim validate -v`. The software's speeds live in
`parsim/cost/software.yaml`; here are the plan switches and the model family a stack implies.
"""

from __future__ import annotations

from dataclasses import dataclass

from parsim.cost.software import GENERIC, software_catalog
from parsim.errors import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Switches assumed where a row leaves them blank, and why.

    `piped_fsdp` is the ZeRO stage whose bytes and collectives FSDP has beside a pipeline,
    `sharded_sums` what gradients of sharded 16-bit parameters are summed and reduced in where that
    is not as the software says.
    """

    reason: str
    precision: str = "bf16"
    recompute: str = "none"
    zero_stage: int = 0
    piped_fsdp: int = 3
    sequence_parallel: bool = False
    dropout: bool = False
    sharded_sums: str = ""


ASSUMPTIONS = {
    "megatron-2021": Assumptions(
        precision="fp16",
        recompute="full",
        dropout=True,
        reason="arXiv:2104.04473: fp16, activation recomputation, plain data parallelism",
    ),
    "megatron-2022": Assumptions(
        precision="fp16",
        recompute="selective",
        dropout=True,
        reason="arXiv:2205.05198: the row says which of the two techniques is on",
    ),
    "megatron-deepspeed-vtrain": Assumptions(
        precision="fp16",
        recompute="full",
        dropout=True,
        reason="vTrain's runs; other settings are rejected by their times",
    ),
    "megatron-deepspeed-2022": Assumptions(
        precision="fp16",
        recompute="full",
        dropout=True,
        reason="scripts of Megatron-DeepSpeed's examples: fp16, --checkpoint-activations, dropout",
    ),
    "deepspeed-zero3-2021": Assumptions(
        precision="fp16",
        recompute="full",
        zero_stage=3,
        dropout=True,
        reason="the comparison runs of arXiv:2104.04473, table 2",
    ),
    "mpt-fsdp-2023": Assumptions(
        zero_stage=3,
        sharded_sums="same",
        reason="llm-foundry's benchmark configurations: full shard, no dropout; runs in bf16 have "
        "16-bit gradients (mixed_precision PURE)",
    ),
    "nemo": Assumptions(
        zero_stage=1,
        sequence_parallel=True,
        reason="recipes use the distributed optimizer and sequence parallelism wherever tp > 1",
    ),
    "torchtitan": Assumptions(
        recompute="selective",
        zero_stage=3,
        piped_fsdp=1,
        sequence_parallel=True,
        reason="defaults of the Llama 3 configurations; with a pipeline parameters are gathered "
        "once a step (parallelize_llama.py), and torch's runtime reduces gradients after the last "
        "micro-batch (torch/distributed/pipelining/stage.py)",
    ),
    "maxtext": Assumptions(
        recompute="selective",
        zero_stage=3,
        sharded_sums="same",
        reason="FSDP recipes, which scatter gradients of 16-bit weights as they are; the "
        "rematerialisation policy is not stated: full and none are both contradicted by the times, "
        "half of the products is between (and needs host offload)",
    ),
    "kempnerforge": Assumptions(
        recompute="full",
        zero_stage=3,
        sequence_parallel=True,
        reason="its training configurations; FSDP with a pipeline gathers parameters in each pass",
    ),
    "paxml": Assumptions(
        sharded_sums="same",
        reason="as maxtext, gradients of 16-bit weights are scattered as they are",
    ),
    GENERIC: Assumptions(reason="nothing is known of this stack"),
}

SAME_AS = {
    "megatron-bridge": "nemo",
    "megatron-bridge-unfused": "nemo",
    "megatron-lm": "nemo",
    "megatron-lm-2025": "nemo",
    "megatron-te-2025": "nemo",
    "primus": "nemo",
    "megatron-deepspeed-2023": "megatron-deepspeed-2022",
    "deepspeed-zero3": "deepspeed-zero3-2021",
    "deepspeed-huggingface": "deepspeed-zero3-2021",
    "deepspeed-huggingface-2021": "deepspeed-zero3-2021",
    "torchtitan-2025": "torchtitan",
    "paxml-te": "paxml",
    "prime-rl": "torchtitan",
    "prime-rl-flash2": "torchtitan",
    "prime-rl-sft": "torchtitan",
    "prime-rl-sft-flash2": "torchtitan",
}

EXPERT_RELEASES: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    "megatron-bridge": (((26, 6), "megatron-bridge-26.06"),)
}
"""Stack -> releases from which on mixtures of experts run otherwise, and the software of each."""


def assumptions_for(stack: str) -> tuple[Assumptions, str, tuple[str, ...]]:
    """(assumptions, software id, notes) of a stack; an unknown one gets the generic ones."""
    if stack in software_catalog():
        key = SAME_AS.get(stack, stack)
        return ASSUMPTIONS.get(key, ASSUMPTIONS[GENERIC]), stack, ()
    return (
        ASSUMPTIONS[GENERIC],
        GENERIC,
        (f"unknown stack '{shown(stack)}': generic assumptions",),
    )


def release_number(release: str) -> tuple[int, ...]:
    """A release as numbers: 26.04.01 is (26, 4, 1)."""
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def software_of_experts(stack: str, release: str) -> str | None:
    """The software with which a release of a stack runs mixtures, None: as everything else.

    Not hybrids: Megatron-Core's schedule that overlaps two micro-batches is made for GPT models.
    """
    printed = release_number(release)
    known = [name for since, name in EXPERT_RELEASES.get(stack, ()) if printed >= since]
    return known[-1] if known else None


def explain(stack: str, predicted_as: str = "") -> list[str]:
    """Lines for `validate -v`: every assumption of a stack with its reason.

    Args:
        stack: as rows say.
        predicted_as: the software of these rows, where the stack is none of the catalog's.
    """
    assumed, name, notes = assumptions_for(stack)
    sums = assumed.sharded_sums and f" gradient_precision={assumed.sharded_sums} (bf16, ZeRO-3)"
    switches = (
        f"precision={assumed.precision} recompute={assumed.recompute} "
        f"zero_stage={assumed.zero_stage} (FSDP with pipelines: {assumed.piped_fsdp}) "
        f"sequence_parallel={assumed.sequence_parallel} "
        f"dropout={assumed.dropout}{sums}: {assumed.reason}"
    )
    told = [*notes, f"  unstated switches: {switches}"]
    if name != stack and predicted_as not in ("", name):  # networks' tables leave no switch open
        name, told = predicted_as, [f"unknown stack '{shown(stack)}': predicted as {predicted_as}"]
    stack_software = software_catalog()[name]
    lines = [f"{stack}: {stack_software.description}", *told]
    for field, reason in stack_software.reasons.items():
        lines.append(f"  {field} = {getattr(stack_software, field)}: {reason}")
    return lines
