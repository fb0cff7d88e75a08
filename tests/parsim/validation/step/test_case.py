"""Model, system, software and plan of a measured run, and what had to be assumed."""

from __future__ import annotations

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.software import software
from parsim.plan import Recompute
from parsim.validation.predict_row import predict_row
from parsim.validation.step.assumptions import ASSUMPTIONS, SAME_AS, assumptions_for, explain
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.model_family import BERT_NOTE, model_family
from parsim.validation.step.row_reader import parse_row
from parsim.validation.tables import RowSkipped
from tests.parsim.validation.conftest import MakeRow

TP8 = {"tp": "8", "dp": "4", "n_micro_batches": "8"}
PP4 = {"pp": "4", "dp": "8", "n_micro_batches": "4"}


def case(row: MakeRow, **changes: str) -> Case:
    return build_case(parse_row(row(**changes)))


def reason(row: MakeRow, **changes: str) -> str:
    with pytest.raises(RowSkipped) as caught:
        case(row, **changes)
    return str(caught.value)


# --------------------------------------------------------------------------- systems


def test_a_system_of_the_catalog(row: MakeRow) -> None:
    built = case(row)
    assert built.job.cluster.system == load_catalog().system("dgx-a100")
    assert built.job.cluster.num_nodes == 4
    assert built.notes == ()


def test_an_unknown_system_is_built_from_its_device(row: MakeRow) -> None:
    built = case(
        row,
        system="cloud",
        gpu_type="h100-sxm-80gb",
        gpus_per_node="4",
        internode_gbit_per_s_per_node="400",
    )
    system, base = built.job.cluster.system, load_catalog().system("dgx-h100")
    assert built.notes == ("unknown system 'cloud': built from dgx-h100",)
    assert system.device.id == "h100-sxm-80gb"
    assert (system.devices_per_node, built.job.cluster.num_nodes) == (4, 8)
    assert system.intra == base.intra
    assert system.network is not None
    assert system.network.node_bandwidth == pytest.approx(400e9 / 8)


@pytest.mark.parametrize(
    ("device", "precision", "assumed"),
    [("h100-sxm-80gb", "", True), ("h100-sxm-80gb", "bf16", False), ("a100-sxm-80gb", "", False)],
)
def test_a_run_without_a_format_is_guessed_where_the_device_has_eight_bits(
    row: MakeRow, device: str, precision: str, assumed: bool
) -> None:
    system = "dgx-h100" if device.startswith("h100") else "dgx-a100"
    built = case(row, system=system, gpu_type=device, precision=precision)
    assert built.format_assumed is assumed
    assert any("precision is not stated" in note for note in built.notes) is assumed


def test_the_network_of_a_known_system_has_the_stated_rate(row: MakeRow) -> None:
    network = case(row, internode_gbit_per_s_per_node="800").job.cluster.system.network
    assert network is not None
    assert network.node_bandwidth == pytest.approx(100e9)


@pytest.mark.parametrize(("gpus_per_node", "rate"), [("4", "1600"), ("72", "28800")])
def test_the_rate_is_that_of_a_node_as_the_row_counts_nodes(
    row: MakeRow, gpus_per_node: str, rate: str
) -> None:
    """18 trays of 4 devices with 1,600 Gbit/s each are a rack with 28,800, as the catalog's."""
    changes = {"n_gpus": "144", "dp": "144", "global_batch_size": "2304"}
    rack = {"system": "gb200-nvl72", "gpu_type": "gb200", "gpus_per_node": gpus_per_node}
    system = case(row, **changes, **rack, internode_gbit_per_s_per_node=rate).job.system
    assert system.devices_per_node == 72
    assert system.network is not None
    assert system.network == load_catalog().system("gb200-nvl72").network


@pytest.mark.parametrize(
    ("gpu_type", "device"),
    [
        ("h800-sxm-80gb", "h800-sxm"),
        ("v100-pcie-32gb", "v100-pcie-16gb"),
        ("l40s-48gb", "l40s"),
        ("rtx-4090-24gb", "rtx-4090"),
    ],
)
def test_a_variant_is_taken_as_the_nearest_of_its_chip(
    row: MakeRow, gpu_type: str, device: str
) -> None:
    built = case(row, gpu_type=gpu_type, precision="fp16")
    assert built.job.device.id == device
    assert f"unknown device {gpu_type!r}: taken as {device}" in built.notes


def test_another_card_of_a_family_is_another_chip(row: MakeRow) -> None:
    told = reason(row, gpu_type="rtx-2080")
    assert told.startswith("gpu_type: device 'rtx-2080' is not in the catalog; nearest: rtx-")


def test_the_device_of_the_row_is_in_the_system(row: MakeRow) -> None:
    assert case(row, gpu_type="a100-sxm-40gb").job.device.id == "a100-sxm-40gb"


def test_fewer_devices_than_a_node_has(row: MakeRow) -> None:
    cluster = case(row, n_gpus="2", dp="2", n_micro_batches="16").job.cluster
    assert (cluster.num_nodes, cluster.system.devices_per_node) == (1, 2)


@pytest.mark.parametrize(
    ("device", "system"),
    [
        ("v100-sxm-16gb", "dgx-1v"),
        ("a100-sxm-40gb", "dgx-a100"),
        ("h200-sxm", "hgx-h200"),
        ("a100-pcie-80gb", "a100-pcie-node"),
        ("b200-sxm", "dgx-b200"),
        ("gb200", "gb200-nvl72"),
    ],
)
def test_systems_by_the_chip(row: MakeRow, device: str, system: str) -> None:
    built = case(row, system="mine", gpu_type=device)
    assert built.job.device.id == device
    assert built.notes == (f"unknown system 'mine': built from {system}",)


def test_a_variant_of_a_device_that_is_not_in_the_catalog(row: MakeRow) -> None:
    built = case(row, gpu_type="a100-sxm-64gb")
    assert built.job.device.id == "a100-sxm-80gb"
    assert built.notes == ("unknown device 'a100-sxm-64gb': taken as a100-sxm-80gb",)


def test_systems_that_cannot_be_built(row: MakeRow) -> None:
    unknown = "gpu_type: device 'gaudi3' is not in the catalog; nearest: "
    assert reason(row, system="cloud", gpu_type="gaudi3").startswith(unknown)
    assert reason(row, gpu_type="gaudi3").startswith(unknown)
    assert reason(row, gpus_per_node="5") == "n_gpus=32 does not fill nodes of 5"


def test_a_card_without_a_system_gets_a_node_of_cards(row: MakeRow) -> None:
    built = case(row, system="cloud", gpu_type="t4")
    assert built.notes == ("unknown system 'cloud': built from a100-pcie-node",)
    assert (built.job.system.id, built.job.device.id) == ("a100-pcie-node", "t4")


# --------------------------------------------------------------------------- software


def test_an_unknown_stack_is_generic(row: MakeRow) -> None:
    built = case(row, stack="own", precision="", recompute="")
    assert built.notes == ("unknown stack 'own': generic assumptions",)
    assert built.job.software == software("generic")
    assert (built.plan.precision, built.plan.recompute) == ("bf16", Recompute.NONE)


def test_a_known_stack_has_its_own_assumptions(row: MakeRow) -> None:
    built = case(row, precision="", recompute="")
    assert built.job.software == software("megatron-2021")
    assert (built.plan.precision, built.plan.recompute) == ("fp16", Recompute.FULL)


@pytest.mark.parametrize("stack", [*ASSUMPTIONS, *SAME_AS])
def test_every_assumption_is_explained(stack: str) -> None:
    lines = explain(stack)
    assumed, name, notes = assumptions_for(stack)
    assert (name, notes) == (stack, ())
    assert lines[0] == f"{stack}: {software(stack).description}"
    assert f"recompute={assumed.recompute}" in lines[1]
    assert lines[1].endswith(assumed.reason)
    told = {line.split(" = ")[0].strip() for line in lines[2:]}
    assert told == set(software(stack).reasons)


def test_a_framework_that_is_predicted_as_another_is_explained_by_that() -> None:
    lines = explain("PipeDream", "pytorch-ddp")
    assert lines[0] == f"PipeDream: {software('pytorch-ddp').description}"
    assert lines[1] == "unknown stack 'PipeDream': predicted as pytorch-ddp"
    assert not any("unstated switches" in line for line in lines)
    assert explain("nowhere", "generic") == explain("nowhere")
    assert explain("nemo", "pytorch-ddp") == explain("nemo")


def test_what_a_row_says_of_the_software_wins(row: MakeRow) -> None:
    fused = case(row, flash_attention="yes").job
    plain = case(row, flash_attention="no").job
    assert not software("megatron-2021").fused_attention
    assert fused.model != plain.model == case(row).job.model
    assert case(row, stack="nemo").job.software.tp_overlap
    assert not case(row, stack="nemo", overlap="dp").job.software.tp_overlap
    assert not case(row, stack="torchtitan", overlap="fsdp").job.software.tp_overlap
    assert case(row, stack="torchtitan", overlap="fsdp+tp").job.software.tp_overlap
    compiled, eager = (
        case(row, stack="torchtitan", torch_compile=told).job.software for told in ("yes", "no")
    )
    assert eager.traffic > compiled.traffic == software("torchtitan").traffic
    unknown, uncompiled = (
        case(row, stack="somebody's", torch_compile=told).job.software for told in ("", "no")
    )
    assert uncompiled.traffic == pytest.approx(software("mpt-fsdp-2023").traffic, rel=3e-3)
    assert unknown.traffic == software("generic").traffic == 1.3
    assert case(row, dropout="no").job.model != case(row).job.model
    assert case(row, dropout="yes").job.model == case(row).job.model
    assert case(row, blocking_launches="yes").job.software.blocking_launches
    assert case(row, quantized_attention="yes").job.software.quantized_attention
    for stack, usual, other in (
        ("nemo", "delayed", "current"),
        ("torchtitan", "current", "delayed"),
    ):
        assert case(row, stack=stack).job.software.fp8_scales == usual
        assert case(row, stack=stack, fp8_scales=other).job.software.fp8_scales == other


def test_what_a_stack_lacked_when_a_run_was_made(row: MakeRow) -> None:
    one_micro_batch = {**TP8, "n_micro_batches": "1", "micro_batch_size": "128"}
    one_micro_batch["stack"] = "torchtitan"
    now, then = (
        case(row, **{**one_micro_batch, "stack_lacks": told}) for told in ("", "accumulation+zero2")
    )
    assert (now.job.software.accumulates, then.job.software.accumulates) == (True, False)
    assert (now.job.software.zero_stages, then.job.software.zero_stages) == ((0, 2, 3), (0, 3))
    assert now.plan == then.plan


# --------------------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("GPT 1.7B", "gpt"),
        ("Llama 2 7B", "llama2"),
        ("llama3.1-405b", "llama3"),
        ("LLAMA_70B", "llama3"),
        ("Nemotron-4 15B", "nemotron"),
        ("mpt-7b", "mpt"),
        ("Mistral 7B", "mistral"),
        ("GPT-NeoX-20B", "gptneox"),
        ("BLOOM 176B", "bloom"),
        ("StarCoderBase 15.5B", "starcoder"),
        ("ours", "gpt"),
    ],
)
def test_families_by_name(name: str, family: str) -> None:
    assert model_family(name).name == family


def test_a_later_model_without_a_name_is_a_llama(row: MakeRow) -> None:
    """A feed-forward part that is not 4 hidden sizes wide has a gate; Falcon's, which is, none."""
    assert model_family("ours", later=True).name == "llama3"
    plain = case(row, model="ours")
    gated = case(row, model="ours", ffn_hidden_size="6144")
    for mine, name, width in ((plain, "GPT", "9216"), (gated, "Llama 3", "6144")):
        named = case(row, model=f"{name} ours", ffn_hidden_size=width)
        assert mine.job.model.parameters == named.job.model.parameters
        assert not any("is not known" in note for note in named.notes)
    grouped = case(row, model="ours", n_kv_heads="8")
    assert grouped.job.model.parameters < plain.job.model.parameters
    assert any("'ours' is not known: by its sizes its layers are GPT's" in n for n in plain.notes)
    assert any("by its sizes its layers are Llama's" in note for note in gated.notes)


def test_sizes_are_those_of_the_row(row: MakeRow) -> None:
    model = case(row).job.model
    # 12 L h^2 (1 + 13 / (12 h)) + (vocabulary + positions) h, and the last norm's 2 h
    h, expected = 2304, 24 * (12 * 2304**2 + 13 * 2304) + (51200 + 2048) * 2304 + 2 * 2304
    assert (model.parameters, model.border // model.tokens, model.num_layers) == (expected, h, 24)


def test_models_that_cannot_be_built(row: MakeRow) -> None:
    assert reason(row, n_kv_heads="5") == (
        "num_key_value_heads=5 does not divide num_attention_heads=24"
    )


def test_bert_has_its_head_of_pre_training(row: MakeRow) -> None:
    """335,141,888 published parameters of encoder and pooler; head: h^2 + h, a norm, V biases."""
    sizes = {"n_layers": "24", "hidden_size": "1024", "n_heads": "16", "n_kv_heads": "16"}
    bert = {**sizes, "ffn_hidden_size": "", "vocab_size": "", "seq_len": "512"}
    built = case(row, model="BERT large", **bert)
    head = 1024**2 + 1024 + 2 * 1024 + 30_522
    assert built.job.model.parameters == 335_141_888 + head
    assert built.job.model.attention is not None
    assert not built.job.model.attention.causal
    assert BERT_NOTE in built.notes
    ours = case(row, model="our-bert", **bert).job.model
    assert ours.parameters == built.job.model.parameters
    predicted = predict_row("t", row(model="BERT-Large", **bert))
    assert not predicted.skipped


# --------------------------------------------------------------------------- plans


def test_degrees_are_those_of_the_row(row: MakeRow) -> None:
    plan = case(row, **PP4, schedule="interleaved_1f1b", vpp="2").plan
    assert (plan.pp, plan.v, plan.schedule) == (4, 2, "interleaved_1f1b")
    assert (plan.dp, plan.num_microbatches, plan.global_batch_size) == (8, 4, 512)


@pytest.mark.parametrize(
    ("schedule", "vpp", "expected"),
    [
        ("", "1", "1f1b"),
        ("", "2", "interleaved_1f1b"),
        ("gpipe", "1", "gpipe"),
        ("none", "", "1f1b"),
    ],
)
def test_a_schedule_that_is_not_stated(
    row: MakeRow, schedule: str, vpp: str, expected: str
) -> None:
    assert case(row, **PP4, schedule=schedule, vpp=vpp).plan.schedule == expected


@pytest.mark.parametrize(
    ("changes", "zero", "replicas"),
    [
        ({}, 0, (32, 1)),
        ({"zero_stage": "2"}, 2, (1, 32)),
        ({"fsdp_size": "8"}, 3, (4, 8)),
        ({"fsdp_size": "64"}, 3, (1, 32)),
        ({"zero_stage": "3", "tp": "8", "pp": "4", "dp": "1", "n_micro_batches": "32"}, 0, (1, 1)),
    ],
)
def test_sharding(
    row: MakeRow, changes: dict[str, str], zero: int, replicas: tuple[int, int]
) -> None:
    plan = case(row, **changes).plan
    assert (plan.zero_stage, (plan.dp_replicate, plan.dp_shard)) == (zero, replicas)


def test_sequence_parallelism_goes_with_tensor_parallelism(row: MakeRow) -> None:
    assert case(row, **TP8, sequence_parallel="yes").plan.sequence_parallel
    assert not case(row, sequence_parallel="yes").plan.sequence_parallel
    assert case(row, **TP8, stack="nemo").plan.sequence_parallel
    assert not case(row, **TP8).plan.sequence_parallel


@pytest.mark.parametrize(
    ("cell", "data", "hops"),
    [("none", False, False), ("dp", True, False), ("p2p", False, True), ("fsdp+p2p", True, True)],
)
def test_overlap(row: MakeRow, cell: str, data: bool, hops: bool) -> None:
    plan = case(row, overlap=cell).plan
    assert (plan.overlap_grad_reduce, plan.overlap_param_gather) == (data, data)
    assert plan.overlap_p2p == hops


def test_overlap_of_products_says_nothing_of_other_exchanges(row: MakeRow) -> None:
    usual, products = (
        case(row, **PP4, stack="torchtitan", overlap=cell).plan for cell in ("", "tp")
    )
    assert products == usual
    assert all((usual.overlap_grad_reduce, usual.overlap_param_gather, usual.overlap_p2p))


@pytest.mark.parametrize(
    ("stack", "changes", "stage"),
    [
        ("torchtitan", {}, 3),
        ("torchtitan", PP4, 1),
        ("torchtitan", {**PP4, "zero_stage": "3", "fsdp_size": "8"}, 1),
        ("torchtitan", {**PP4, "zero_stage": "0"}, 0),
        ("torchtitan", {**PP4, "zero_stage": "2"}, 2),
        ("mpt-fsdp-2023", PP4, 3),
        ("fms-fsdp", {"zero_stage": "3"}, 3),
    ],
)
def test_torchs_pipelines_gather_once_a_step(
    row: MakeRow, stack: str, changes: dict[str, str], stage: int
) -> None:
    """FSDP beside torch's pipelines costs what ZeRO-1 does, gradients in fp32.

    Shards of 16-bit parameters, and of fms-fsdp, have gradients in 16 bit.
    """
    plan = case(row, stack=stack, precision="bf16", **changes).plan
    sums = "fp32" if stack == "torchtitan" else "same"
    assert plan.zero_stage == stage
    assert (plan.gradient_precision, plan.reduce_precision) == (sums, sums)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"recompute": "some"},
            "recompute='some' is unknown; allowed: none, selective, full, block",
        ),
        ({"precision": "int8"}, "precision 'int8' is not yet simulated"),
        ({"schedule": "zbv"}, "schedule zbv is not yet simulated"),
        ({"schedule": "1f1b", "vpp": "2"}, "schedule 1f1b contradicts vpp=2"),
        ({"fsdp_size": "3"}, "fsdp_size=3 does not divide dp=32"),
    ],
)
def test_plans_that_cannot_be_built(row: MakeRow, changes: dict[str, str], told: str) -> None:
    assert reason(row, **changes) == told


# --------------------------------------------------------------------------- how a run was placed

LLAMA = {
    "stack": "megatron-bridge",
    "system": "dgx-h100",
    "gpu_type": "h100-sxm-80gb",
    "model": "Llama 3 8B",
    "precision": "bf16",
    "recompute": "none",
    "seq_len": "8192",
    "n_gpus": "64",
    "internode_gbit_per_s_per_node": "",
    **dict.fromkeys(("n_layers", "hidden_size", "n_heads", "n_kv_heads", "vocab_size"), ""),
    "ffn_hidden_size": "",
}
INSIDE = {"tp": "2", "pp": "4", "dp": "8", "micro_batch_size": "1", "n_micro_batches": "8"}
ALONE = {"dp": "64", "micro_batch_size": "1", "n_micro_batches": "1", "global_batch_size": "64"}


def predicted(row: MakeRow, base: dict[str, str], **columns: str) -> float:
    done = predict_row("t", row(**LLAMA, **base, **columns))
    assert done.predicted_step is not None, done.reason
    return done.predicted_step


def test_pipelines_inside_replicas(row: MakeRow) -> None:
    """Messages stay in the node, gradients leave it: 8 ranks of a group on 8 nodes, not 4 on 4."""
    batch = {**INSIDE, "global_batch_size": "64"}
    built = case(row, **LLAMA, **batch, rank_order="dp+pp+cp+tp")
    assert built.plan.rank_order == ("dp_replicate", "dp_shard", "pp", "cp", "tp")
    usual = predicted(row, batch)
    assert predicted(row, batch, rank_order="pp+dp+cp+tp") == usual
    assert predicted(row, batch, rank_order="dp+pp+cp+tp") > 1.001 * usual
    context = {**batch, "cp": "2", "dp": "4", "n_micro_batches": "16"}
    assert predicted(row, context, rank_order="dp+pp+cp+tp") > predicted(row, context)


def test_a_stage_of_the_embedding_alone(row: MakeRow) -> None:
    batch = {**INSIDE, "global_batch_size": "64"}
    even = predicted(row, batch)
    assert predicted(row, batch, stage_layers="8+8+8+8") == pytest.approx(even, rel=0.05)
    assert predicted(row, batch, stage_layers="0+11+11+10") > 1.12 * even  # 11 layers, not 8
    told = predict_row("t", row(**LLAMA, **batch, stage_layers="8+8+8")).reason
    wish = "write as many, or leave it out"
    assert told == f"stage_layers has 3 entries, but pp=4 x v=1 needs 4; {wish}"


def test_buckets_of_few_parameters_pay_their_latency_more_often(row: MakeRow) -> None:
    """8e9 parameters in buckets of 1e6 are 8,030 collectives of 64 ranks; gradients of 2 bytes."""
    built = case(row, **LLAMA, **ALONE, ddp_bucket_parameters="1000000")
    assert built.job.software.ddp_bucket_parameters == 1e6
    small, usual, large = (
        predicted(row, ALONE, ddp_bucket_parameters=count)
        for count in ("1000000", "64000000", "200000000")
    )
    assert small > usual > large
    assert usual == predicted(row, ALONE)  # Megatron's rule: 1e6 for each of 64 replicas


def test_cuda_graphs_spare_the_host_its_launches(row: MakeRow) -> None:
    """A small model of a stack of 47 us a launch waits for the host; a graph does not."""
    assert case(row, cuda_graphs="yes").job.software.captured == ("all",)
    small = {"micro_batch_size": "1", "global_batch_size": "32", "seq_len": "256"}
    launched, graphed = (
        predict_row("t", row(**small, cuda_graphs=cell)).predicted_step for cell in ("no", "yes")
    )
    assert launched is not None
    assert graphed is not None
    assert graphed < 0.9 * launched
    assert predict_row("t", row(**small)).predicted_step == launched


# --------------------------------------------------------------------------- context and 8 bit

CP2 = {"dp": "16", "cp": "2", "n_micro_batches": "2"}
H100 = {"system": "dgx-h100", "gpu_type": "h100-sxm-80gb", "stack": "nemo"}


def test_context_parallel_ranks_share_the_states_of_their_replicas(row: MakeRow) -> None:
    plan = case(row, **H100, **CP2).plan
    assert (plan.cp, plan.dp_replicate, plan.dp_shard, plan.zero_stage) == (2, 1, 16, 1)
    assert plan.world_size == 32
    alone = case(
        row, **H100, dp="1", cp="32", micro_batch_size="1", n_micro_batches="512", seq_len="8192"
    ).plan
    assert (alone.cp, alone.dp_shard, alone.zero_stage) == (32, 1, 1)


@pytest.mark.parametrize("precision", ["fp8", "fp8_amp", "fp8_rowwise"])
def test_precisions_of_8_bit(row: MakeRow, precision: str) -> None:
    assert case(row, **H100, precision=precision).plan.precision == precision


def test_an_8_bit_row_of_a_device_without_it_is_skipped(row: MakeRow) -> None:
    told = predict_row("mine", row(precision="fp8", stack="nemo")).reason
    assert told.startswith("precision='fp8' has no peak on device a100-sxm-80gb; allowed: fp32")
    blocks = predict_row("mine", row(**H100, precision="nvfp4")).reason
    assert blocks.startswith("precision='nvfp4' has no peak on device h100-sxm-80gb; allowed: ")
