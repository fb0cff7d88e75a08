"""Cases of `same_numbers` that end in an error, with message and exit code, and help texts."""

from __future__ import annotations

from collections.abc import Iterable

from tests.tools.same_numbers.case import Case, scenario, settings

L8, SMALL = "llama3-8b-dgx-h100", "gpt2-small-cpu"
MIXED, QWEN = "llama3-70b-h100-a100", "qwen3-30b-a3b-dgx-h100"
GPT3, MEGATRON = "gpt3-175b-dgx-a100", "megatron-1t-dgx-a100"

WRONG = {
    "tp": (L8, "plan.tp=3"),
    "dp": (L8, "plan.dp=3"),
    "batch": (L8, "training.global_batch_size=15"),
    "stages": (SMALL, "plan.pp=16"),
    "schedule": (SMALL, "plan.schedule=1f1c"),
    "unfused-cp": (SMALL, "plan.pp=1 plan.cp=2 model.fused_attention=false"),
    "no-experts": (SMALL, "plan.ep=2"),
    "zero": (SMALL, "plan.zero_stage=5"),
    "type": (SMALL, "plan.tp=x"),
    "unit": (SMALL, "cluster.intra.latency=5GB"),
    "device": (SMALL, "cluster.device=h100-sxm-80g"),
    "model": (SMALL, "model.name=gpt4"),
    "software": (SMALL, "software=megatron"),
    "system": (L8, "cluster.system=dgx-h10"),
    "key": (SMALL, "plan.microbatchsize=1"),
    "no-plan": (SMALL, "plan=null"),
    "interleaved-batch": (
        L8,
        "plan={pp: 4, dp: 2, schedule: interleaved_1f1b, v: 2} training.global_batch_size=12",
    ),
    "v": (L8, "plan={pp: 4, dp: 2, v: 2}"),
    "zero-nothing": (L8, "plan={tp: 8, dp_shard: 1, zero_stage: 1}"),
    "both-dp": (L8, "plan={dp: 8, dp_shard: 8}"),
    "sp": (L8, "plan.sequence_parallel=true"),
    "stage-layers": (L8, "plan={pp: 4, dp: 2, stage_layers: [8, 8, 8, 9]}"),
    "rank-order": (L8, "plan.rank_order=[pp, tp]"),
    "precision": (L8, "training.precision=nvfp4"),
    "modules": (L8, "plan.recompute_modules=[moe_acts]"),
    "experts-ep": (QWEN, "plan.ep=7"),
    "experts-sp": (QWEN, "plan={tp: 2, dp: 8, ep: 8, zero_stage: 1}"),
    "mixed-order": (MIXED, "plan.node_order=[fast]"),
    "mixed-batches": (MIXED, "plan.replica_microbatches=[60]"),
    "mixed-experts": (MIXED, "model={name: mixtral-8x7b} plan.stage_layers=null"),
    "mixed-network": (MIXED, "cluster.network.nic_bandwidth=1Gb/s"),
    "slow-rank": (MIXED, "jitter.slow_ranks={32: 1.2}"),
    "part": (MIXED, "cluster.failed=[nic:4.0]"),
    "hosts": (SMALL, "background.streams.x={from: devices, to: hosts, size: 1MB}"),
    "storage": (GPT3, "background.streams.x={from: devices, to: storage, size: 1MB}"),
    "spine": (GPT3, "network.spine.colour=red"),
}
"""Settings that are refused, with exit code 2."""

TOO_LARGE = {
    "sharding": (L8, "plan.zero_stage=0"),
    "recompute": (MEGATRON, "plan.recompute=none"),
    "microbatch": (GPT3, "plan.recompute=none plan.microbatch_size=4"),
    "degrees": (GPT3, "plan.pp=1 plan.dp=128 plan.schedule=1f1b plan.v=1"),
    "two": (
        "llama3-70b-dgx-h100",
        "plan.recompute=none plan.microbatch_size=8 plan.schedule=gpipe plan.v=1",
    ),
    "nodes": (L8, "plan.zero_stage=0 plan.recompute=full model.name=llama3-70b"),
    "mixed": (MIXED, "cluster.groups.slow.device=a100-sxm-40gb plan.stage_layers=[20,20,20,20]"),
    "experts": (QWEN, "plan.ep=1 plan.microbatch_size=8"),
}
"""Plans that do not fit, with exit code 3 and the least change that would."""

NO_SEARCH = {
    "fits": (L8, "search.tp=1 search.pp=1 search.zero_stage=0"),
    "legal": (SMALL, "plan=null search.tp=1 search.pp=2 model.num_layers=1"),
    "degrees": (L8, "search.tp=3"),
    "mixed": (MIXED, "search.tp=3"),
}
WORDS = {
    "command": "simulte x",
    "missing": "simulate",
    "option": f"simulate {scenario(SMALL)} --jsn",
    "top": f"search {scenario(SMALL)} --top x",
    "set": f"simulate {scenario(SMALL)} --set plan.tp",
    "no-file": "check scenarios/gpt2-smal-cpu.yaml",
    "folder": "check scenarios",
    "misspelt": "check {in}/misspelt.yaml",
    "no-plan": "simulate {in}/no-plan.yaml",
    "suffix": f"timeline {scenario(SMALL)} -o {{out}}/x.bmp",
    "contended-picture": f"timeline {scenario(L8)} -o {{out}}/x.svg --contention",
    "on": f"simulate {scenario(L8)} --on 0",
    "steps": f"simulate {scenario(L8)} --jitter-steps 10000001",
    "emit-mixed": f"run {scenario(MIXED)} --emit torchrun",
    "both-tables": "validate --kernels --collectives",
    "no-system": "collectives --kind all_reduce",
    "catalog": "catalog show dgx-h10",
}
VERBS = (
    "check",
    "simulate",
    "search",
    "timeline",
    "compare",
    "validate",
    "run",
    "calibrate",
    "collectives",
    "catalog",
    "catalog show",
    "catalog import",
)


def error_cases() -> Iterable[Case]:
    """Every case of this file; all are quick to run and most are part of the short run."""
    for kind, verb, table in (
        ("wrong", "simulate", WRONG),
        ("too-large", "simulate", TOO_LARGE),
        ("no-search", "search", NO_SEARCH),
    ):
        for name, (of, text) in table.items():
            words = (verb, scenario(of), "--json", *settings(text))
            quick = of not in (GPT3, MEGATRON)
            yield Case(id=f"{kind}/{name}", commands={"json": words}, quick=quick)
    for name, text in WORDS.items():
        yield Case(id=f"words/{name}", commands={"text": tuple(text.split())}, quick=True)
    helps = {verb: (*verb.split(), "--help") for verb in VERBS}
    yield Case(id="words/help", commands={"all": ("--help",), **helps}, quick=True)
