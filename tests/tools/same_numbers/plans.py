"""Plans of `same_numbers`: schedules, sharding, overlap switches and orders of ranks."""

from __future__ import annotations

from itertools import product

from tests.tools.same_numbers.group import (
    EVENTS,
    HYBRID,
    JITTER,
    L8,
    L70,
    LINKS,
    PLAIN,
    QWEN,
    SEARCH,
    SHARED,
    SIXTEEN,
    TEXT,
    TRACE,
    Group,
    named,
    plan,
)

SCHEDULES = {
    **{
        name: f"plan.schedule={name}"
        for name in (
            "naive",
            "gpipe",
            "1f1b",
            "zb_h1",
            "zb_h2",
            "zb_1p",
            "zb_2p",
            "zb_auto",
            "zb_v",
            "v_half",
            "v_min",
        )
    },
    "interleaved-v2": "plan.schedule=interleaved_1f1b plan.v=2",
    "interleaved-v8": "plan.schedule=interleaved_1f1b plan.v=8",
    "zb_auto-timed": "plan.schedule=zb_auto plan.action_times=[2.0, 2.5, 1.5, 0.1, 0.5]",
}
SIZES = {
    "sp": "plan.sequence_parallel=true",
    "full": "plan.recompute=full",
    "zero1": "plan.dp_replicate=1 plan.dp_shard=2 plan.zero_stage=1",
    "zero2": "plan.dp_replicate=1 plan.dp_shard=2 plan.zero_stage=2",
    "zero3": "plan.dp_replicate=1 plan.dp_shard=2 plan.zero_stage=3",
    "p2p": "plan.overlap_p2p=true",
    "blocking": "plan.overlap_p2p=false",
    "scatter": "plan.scatter_p2p=true",
}

SCHEDULE_GROUPS = (
    Group(
        name="schedule",
        of=L8,
        base=f"{SIXTEEN} {HYBRID}",
        variants=SCHEDULES,
        forms=(PLAIN, LINKS, EVENTS, JITTER, TRACE),
        quick=("gpipe", "interleaved-v2", "zb_h1", "zb_h2", "zb_auto", "v_half", "v_min"),
        seconds=1.0,
    ),
    *(
        Group(
            name=f"schedule-{size}",
            of=L8,
            base=f"{SIXTEEN} {HYBRID} {more}",
            variants=SCHEDULES,
            quick={"zero3": ("1f1b", "interleaved-v2"), "zero1": ("zb_v",)}.get(size, ()),
        )
        for size, more in SIZES.items()
    ),
    Group(
        name="schedule-executor",
        of="gpt2-small-cpu",
        base="training.global_batch_size=8",
        variants=SCHEDULES,
        forms=(PLAIN, LINKS, JITTER),
        quick=("zb_2p",),
    ),
)

SHARDS = {
    "zero0": "dp_replicate: 16",
    "zero1": "dp_shard: 16, zero_stage: 1",
    "zero2": "dp_shard: 16, zero_stage: 2",
    "zero3": "dp_shard: 16, zero_stage: 3",
    "hsdp1": "dp_replicate: 2, dp_shard: 8, zero_stage: 1",
    "hsdp2": "dp_replicate: 2, dp_shard: 8, zero_stage: 2",
    "hsdp3": "dp_replicate: 2, dp_shard: 8, zero_stage: 3",
    "hsdp3-4x4": "dp_replicate: 4, dp_shard: 4, zero_stage: 3",
}
INSIDE = {
    "tp2": ("tp: 2, ", 2),
    "tp2-sp": ("tp: 2, sequence_parallel: true, ", 2),
    "cp2": ("cp: 2, ", 2),
    "cp2-tp2-sp": ("cp: 2, tp: 2, sequence_parallel: true, ", 4),
    "pp2": ("pp: 2, ", 2),
    "pp2-v4": ("pp: 2, schedule: interleaved_1f1b, v: 4, ", 2),
    "pp2-zb": ("pp: 2, schedule: zb_h1, ", 2),
    "full": ("recompute: full, ", 1),
    "selective": ("recompute: selective, microbatch_size: 2, ", 1),
}


def shrunk(text: str, by: int) -> str:
    """A layout with its last degree divided, to leave room for other axes."""
    for degree in ("dp_shard: ", "dp_replicate: "):
        if degree in text:
            head, _, tail = text.partition(degree)
            number, comma, rest = tail.partition(",")
            return f"{head}{degree}{int(number) // by}{comma}{rest}"
    return text


SHARD_PLANS = {
    **{name: f"plan={{{text}}}" for name, text in SHARDS.items()},
    **{
        f"{name}-{more}": f"plan={{{inner}{shrunk(text, by)}}}"
        for (name, text), (more, (inner, by)) in product(SHARDS.items(), INSIDE.items())
    },
}
SWITCHES = named(
    overlap_grad_reduce={"reduce": "true", "late": "false"},
    overlap_param_gather={"gather": "true", "early": "false"},
    reduce_precision={"fp32": "fp32", "same": "same"},
)
OTHER_SWITCHES = {
    **{f"bucket-{size}": f"plan.bucket_size={size}" for size in ("25MB", "1GB", "100GB")},
    "gradients-same": "plan.gradient_precision=same",
    "all-same": "plan.gradient_precision=same plan.reduce_precision=same plan.bucket_size=40MB",
}
SHARDING_GROUPS = (
    Group(
        name="shard",
        of=L8,
        base=SIXTEEN,
        variants=SHARD_PLANS,
        quick=(
            "zero1",
            "zero2",
            "zero3",
            "hsdp3-tp2-sp",
            "hsdp1-cp2",
            "hsdp2-pp2-v4",
            "zero3-full",
            "zero0-cp2-tp2-sp",
            "zero3-pp2-zb",
        ),
    ),
    Group(
        name="shard-jitter",
        of=L8,
        base=SIXTEEN,
        variants={name: f"plan={{{text}}}" for name, text in SHARDS.items()},
        forms=(EVENTS, JITTER, TRACE, TEXT),
        quick=("hsdp3",),
    ),
    *(
        Group(
            name=f"switch-{name}",
            of=L8,
            base=f"{SIXTEEN} plan={{{text}, pp: 2, tp: 2}}",
            variants={**SWITCHES, **OTHER_SWITCHES},
            quick=("late-early-fp32", "bucket-25MB") if name == "zero2" else (),
        )
        for name, text in (
            ("zero0", "dp_replicate: 4"),
            ("zero1", "dp_shard: 4, zero_stage: 1"),
            ("zero2", "dp_shard: 4, zero_stage: 2"),
            ("zero3", "dp_shard: 4, zero_stage: 3"),
            ("hsdp3", "dp_replicate: 2, dp_shard: 2, zero_stage: 3"),
        )
    ),
    Group(
        name="rank-order",
        of=L8,
        base=f"{SIXTEEN} {plan(tp=2, pp=2, dp_replicate=2, dp_shard=2, zero_stage=1)}",
        variants={
            "pp-inside": "plan.rank_order=[dp_replicate, dp_shard, cp, tp, pp]",
            "tp-outside": "plan.rank_order=[tp, pp, dp_replicate, dp_shard, cp]",
            "dp-outside": "plan.rank_order=[dp_replicate, dp_shard, pp, cp, tp]",
            "shard-outside": "plan.rank_order=[dp_shard, pp, dp_replicate, cp, tp]",
            "cp-outside": "plan.tp=1 plan.cp=2 "
            "plan.rank_order=[pp, dp_replicate, cp, dp_shard, tp]",
        },
        forms=(PLAIN, LINKS, JITTER),
        quick=("pp-inside",),
    ),
)

SEARCHES = {
    "sharding": (
        L70,
        "search={tp: [4, 8], pp: [1, 4], zero_stage: [0, 1, 2, 3], recompute: full, "
        "microbatch_size: 1}",
    ),
    "zero-bubble": (
        L70,
        "search={tp: 4, pp: 4, microbatch_size: 1, recompute: [none, full], "
        "schedule: [1f1b, zb_h1, zb_h2, zb_1p, zb_2p, zb_auto, zb_v, v_half]}",
    ),
    "context": (L8, "search={cp: [1, 2, 4, 8], tp: [1, 2]} software=nemo training.precision=fp8"),
    "early": (L8, "search.common={overlap_grad_reduce: false, bucket_size: 25MB}"),
    "margin": (L8, "search.memory_margin=0.5"),
    "links": (
        SHARED,
        "search={tp: [4, 8], pp: [1, 2], microbatch_size: [1, 2]} cluster.failed=[nic:0.3]",
    ),
    "free": (SHARED, "background=null"),
    "experts": (
        QWEN,
        "search={ep: [1, 2, 4, 8, 16], tp: [1, 2], pp: [1, 2, 4], cp: [1, 2], "
        "microbatch_size: 1, zero_stage: [0, 1, 2, 3], recompute: full} "
        "training.global_batch_size=64",
    ),
    "hybrid": (
        "gpt-6x8x64-hybrid",
        "search={tp: 8, pp: [32, 64], microbatch_size: [1, 2], "
        "zero_stage: [0, 1], recompute: selective}",
    ),
}
"""Spaces that no shipped scenario searches."""

SEARCH_GROUPS = tuple(
    Group(
        name="space",
        of=of,
        variants={name: text},
        forms=(SEARCH,),
        quick=("sharding", "context"),
        seconds=3.0,
    )
    for name, (of, text) in SEARCHES.items()
)
PLAN_GROUPS = (*SCHEDULE_GROUPS, *SHARDING_GROUPS, *SEARCH_GROUPS)
