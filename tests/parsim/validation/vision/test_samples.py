"""Measured runs of networks: the schema, what is skipped and why, and the public rows' errors."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from parsim.plan.strategies import (
    AllReduce,
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    SingleProcess,
    Strategy,
)
from parsim.sim import simulate
from parsim.validation.tables import RowSkipped, shipped_tables
from parsim.validation.validate import Validation, validate
from parsim.validation.vision.measured_samples import parse_samples
from parsim.validation.vision.predict_samples import predict_samples
from parsim.validation.vision.samples_case import case_of

ON_DEVICES = AsynchronousServer(on="devices")

ROW = {
    "row_id": "a",
    "framework": "PyTorch",
    "model": "resnet50",
    "gpu_type": "v100-sxm-16gb",
    "system": "dgx-1v",
    "gpus_per_node": "8",
    "n_gpus": "8",
    "strategy": "data_parallel",
    "precision": "fp32",
    "batch_per_gpu": "112",
    "global_batch_size": "896",
    "samples_per_s": "2855",
}


UNSEEN = ("lambda_resnet50_2023", "timm_train_2022")
"""Tables of devices whose kernels nobody had measured."""


@pytest.fixture(scope="module")
def public() -> Validation:
    return validate([path for path in shipped_tables("vision") if path.stem not in UNSEEN])


def test_a_row_has_types() -> None:
    run = parse_samples(ROW)
    assert run.step_time == pytest.approx(896 / 2855)
    case = case_of(run)
    job, plan, notes = case.job, case.plan, case.notes
    assert (plan.dp, plan.microbatch_size, plan.num_microbatches) == (8, 112, 1)
    assert job.software.id == "pytorch-ddp"
    assert notes == ()


STRATEGIES: list[tuple[dict[str, str], Strategy]] = [
    ({"strategy": "data_parallel"}, AllReduce()),
    ({"strategy": "single_process_data_parallel"}, SingleProcess()),
    ({"strategy": "parameter_server", "servers": "1"}, ParameterServer(servers=1)),
    ({"strategy": "parameter_server", "node_sums": "yes"}, ParameterServer(node_sums=True)),
    ({"strategy": "async_parameter_server", "servers_on": "devices"}, ON_DEVICES),
    ({"strategy": "local_sgd", "sync_every": "4"}, LocalSGD(every=4)),
    ({"strategy": "diloco", "sync_every": "100"}, DiLoCo(every=100)),
    ({"strategy": "gossip"}, Gossip()),
    ({"strategy": "asynchronous_gossip"}, AsynchronousGossip()),
    ({"strategy": "ddp"}, AllReduce()),
    ({"strategy": "asynchronous_server", "servers_on": "devices"}, ON_DEVICES),
]


@pytest.mark.parametrize(("cells", "strategy"), STRATEGIES, ids=lambda case: str(case))
def test_replicas_are_kept_one_model_as_the_row_says(
    cells: dict[str, str], strategy: Strategy
) -> None:
    plan = case_of(parse_samples(ROW | cells)).plan
    assert plan.strategy == strategy
    assert plan.dp == 8


@pytest.mark.parametrize(
    ("cells", "sums", "overlap"),
    [
        ({"framework": "MXNet 1.0", "n_gpus": "16", "global_batch_size": "1792"}, True, True),
        ({"framework": "TensorFlow", "n_gpus": "8"}, False, True),
        ({"framework": "TensorFlow", "overlap": "no"}, False, False),
        ({"framework": "PyTorch", "overlap": ""}, False, False),
    ],
)
def test_frameworks_push_as_they_are_known_to(
    cells: dict[str, str], sums: bool, overlap: bool
) -> None:
    """Devices of a machine sum first where there are several machines; unless a cell says other."""
    strategy = parse_samples(ROW | {"strategy": "parameter_server"} | cells).replicated_by
    assert strategy == ParameterServer(node_sums=sums, overlap=overlap)


def test_pipelines_without_flush_are_faster_than_with_one() -> None:
    """GPT on 8 V100: PipeDream-2BW over its flush, over GPipe (arXiv 2006.09503, figure 6a)."""
    row = ROW | {"model": "gpt2-xl", "precision": "fp16_amp", "batch_per_gpu": ""}
    row |= {"global_batch_size": "64", "n_micro_batches": "16", "recompute": "full"}
    steps = {}
    for name, schedule in (
        ("gpipe", "gpipe"),
        ("pipedream_flush", "1f1b"),
        ("pipedream_2bw", "pipedream_2bw"),
    ):
        case = case_of(parse_samples(row | {"strategy": name}))
        job, plan = case.job, case.plan
        assert (plan.pp, plan.num_microbatches, plan.schedule) == (8, 16, schedule)
        steps[name] = simulate(job, plan).step_time
    assert steps["pipedream_2bw"] < 0.8 * steps["pipedream_flush"]
    assert steps["pipedream_flush"] <= 1.02 * steps["gpipe"]


def test_a_server_is_predicted_slower_than_an_all_reduce_on_nvlink() -> None:
    served = predict_samples("t", ROW | {"strategy": "parameter_server", "model": "vgg16"})
    reduced = predict_samples("t", ROW | {"model": "vgg16"})
    assert served.predicted_step is not None
    assert reduced.predicted_step is not None
    assert served.predicted_step > 1.1 * reduced.predicted_step


def test_a_worker_alone_still_sends_its_gradients_to_a_server_on_the_host() -> None:
    """TensorFlow's variables on the CPU: 102 MB of ResNet-50 each way, whoever else trains."""
    alone = ROW | {"n_gpus": "1", "global_batch_size": ROW["batch_per_gpu"], "strategy": "single"}
    served = predict_samples("t", alone | {"strategy": "parameter_server", "servers": "1"})
    single = predict_samples("t", alone)
    assert served.predicted_step is not None
    assert single.predicted_step is not None
    assert served.predicted_step > single.predicted_step + 2 * 102e6 / 40e9


def test_an_update_in_python_takes_time_for_each_array() -> None:
    """MXNet of 2017: 25 ms of ResNet-50's step of one image on a V100, of 29 ms measured."""
    alone = {"n_gpus": "1", "strategy": "single", "batch_per_gpu": "1", "global_batch_size": "1"}
    row = ROW | alone | {"gpu_type": "v100-sxm-16gb", "model": "resnet50"}
    slow = predict_samples("t", row | {"framework": "MXNet-2018"})
    fast = predict_samples("t", row | {"framework": "TensorFlow 1.15"})
    assert slow.predicted_step == pytest.approx(0.029, rel=0.25)
    assert fast.predicted_step is not None
    assert fast.predicted_step < 0.5 * 0.029


ALONE = ROW | {
    "n_gpus": "1",
    "strategy": "single",
    "model": "vgg16",
    "batch_per_gpu": "16",
    "global_batch_size": "16",
}


def test_both_passes_alone_have_no_update() -> None:
    """138 million parameters of VGG-16 are read and written 20 bytes each: 3.7 ms of a V100."""
    whole, both, image = (
        predict_samples("t", ALONE | {"covers": words}).predicted_step
        for words in ("", "forward_backward", "forward_backward input_gradient")
    )
    assert whole is not None
    assert both is not None
    assert image is not None
    assert whole - both == pytest.approx(20 * 138_357_544 / (900e9 * 0.839) + 1e-3, rel=0.02)
    assert image > both


def test_a_row_says_which_cudnn_it_had() -> None:
    old, new = (
        predict_samples("t", ALONE | {"cudnn": release}).predicted_step for release in ("4", "5.1")
    )
    assert old is not None
    assert new is not None
    assert old > 1.3 * new


def test_a_row_says_how_its_images_lie() -> None:
    """16-bit kernels of A100 and H100 turn values at what multiprocessors move, not memory."""
    for device, least in (("v100-sxm-16gb", 1.3), ("a100-sxm-80gb", 1.5), ("h100-sxm-80gb", 1.5)):
        row = ALONE | {"gpu_type": device, "precision": "fp16_amp", "model": "resnet50"}
        last, first, usual = (
            predict_samples(
                "t", row | {"batch_per_gpu": "256", "global_batch_size": "256", "layout": layout}
            ).predicted_step
            for layout in ("channels_last", "channels_first", "")
        )
        assert last is not None
        assert first is not None
        assert last == usual
        assert first > least * last


GNMT = ALONE | {"model": "gnmt-8", "batch_per_gpu": "128", "global_batch_size": "128"}


def test_a_batch_is_computed_at_the_length_that_it_is_padded_to() -> None:
    """All but the update grows with the tokens: 30 for 25."""
    mean, same, padded = (
        predict_samples("t", GNMT | {"padded_length": length}) for length in ("", "25", "30")
    )
    assert mean.predicted_step == same.predicted_step
    assert mean.predicted_step is not None
    assert padded.predicted_step is not None
    assert 1.15 < padded.predicted_step / mean.predicted_step < 1.2


def test_images_are_padded_to_no_length() -> None:
    with pytest.raises(RowSkipped, match="padded_length=30: vgg16 reads no sentences"):
        case_of(parse_samples(ALONE | {"padded_length": "30"}))


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ({"out_of_scope": "explicit im2col"}, "explicit im2col"),
        ({"covers": "forward"}, "covers='forward' must be blank or one of forward_backward, "),
        ({"cudnn": "new"}, "cudnn='new'"),
        ({"layout": "nhwc"}, "layout='nhwc' must be blank or one of channels_last, channels_first"),
    ],
)
def test_what_a_row_rules_out(cell: dict[str, str], reason: str) -> None:
    with pytest.raises(RowSkipped, match=reason):
        parse_samples(ALONE | cell)


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("MXNet 22.10", "mxnet"),
        ("MXNet-2017", "mxnet-2016"),
        ("Torch7, cuDNN 5.1.05", "torch7"),
        ("PyTorch-2019 1.0.0", "pytorch-2017"),
        ("Caffe2-2017 0.8.1", "caffe2"),
        ("TensorFlow 1.15 + XLA", "tensorflow-xla"),
        ("TensorFlow 1.15", "tensorflow"),
        ("PaddlePaddle", "tensorflow"),
        ("PyTorch", "pytorch-ddp"),
    ],
)
def test_frameworks_are_predicted_as_stacks_of_their_own(framework: str, stack: str) -> None:
    case = case_of(parse_samples(ROW | {"framework": framework}))
    job, notes = case.job, case.notes
    assert job.software.id == stack
    assert notes == ()


def test_replicas_of_other_frameworks_do_not_lose_what_pytorch_loses_in_amp() -> None:
    """MXNet keeps 7.8 of 8 devices' rate in 16 bit, PyTorch's containers of 2021 6.9."""
    amp = ROW | {"precision": "fp16_amp", "batch_per_gpu": "192", "global_batch_size": "1536"}
    alone = amp | {"n_gpus": "1", "global_batch_size": "192", "strategy": "single"}
    ratios = {}
    for framework in ("MXNet", "PyTorch"):
        eight, single = (
            predict_samples("t", row | {"framework": framework}).predicted_step or 0.0
            for row in (amp, alone)
        )
        ratios[framework] = 8 * single / eight
    assert ratios["MXNet"] > 7.5
    assert ratios["PyTorch"] < 7.0


def test_a_pipeline_is_cut_near_its_finer_pieces() -> None:
    note = "micro-batches 256, layers per partition 44-92-124-110"
    row = ROW | {"framework": "torchgpipe 0.0.5", "model": "resnet101", "system": "p40-node"}
    row |= {"gpu_type": "p40", "n_gpus": "4", "strategy": "gpipe", "recompute": "full"}
    row |= {"global_batch_size": "5632", "batch_per_gpu": "", "note": note}
    case = case_of(parse_samples(row))
    job, plan = case.job, case.plan
    assert (plan.pp, plan.microbatch_size, plan.num_microbatches) == (4, 22, 256)
    assert plan.stage_layers is not None
    # 44 of 370 pieces, in single nodes of the graph
    assert sum(plan.stage_layers) == job.model.num_layers == 346
    assert plan.stage_layers[0] == round(346 * 44 / 370)


def test_no_micro_batches_are_one() -> None:
    note = "micro-batches 0, layers per partition 241"
    row = ROW | {"framework": "torchgpipe 0.0.5", "system": "p40-node", "gpu_type": "p40"}
    row |= {"n_gpus": "1", "strategy": "gpipe", "recompute": "full", "note": note}
    assert parse_samples(row).n_micro_batches == 1


WRONG = {
    "samples_per_s=2855 is a step of 0.3138 s with 896 samples, but step_time_s=0.5": {
        "step_time_s": "0.5"
    },
    "strategy 'hogwild' is not predicted": {"strategy": "hogwild"},
    "sync_every is not stated": {"strategy": "local_sgd"},
    "overlap='maybe' must be yes or no": {
        "strategy": "parameter_server",
        "framework": "MXNet",
        "overlap": "maybe",
    },
    "servers_on='moon' must be hosts or devices": {
        "strategy": "parameter_server",
        "servers_on": "moon",
    },
    "n_gpus is not stated": {"n_gpus": ""},
    "neither global_batch_size nor batch_per_gpu": {"global_batch_size": "", "batch_per_gpu": ""},
    "batch_per_gpu='many' is not a whole number": {
        "batch_per_gpu": "many",
        "global_batch_size": "",
    },
    "neither samples_per_s, step_time_s, peak_memory_gib_sum nor": {"samples_per_s": ""},
    "model 'resnet5000' is not in the catalog (did you mean 'resnet50'?)": {"model": "resnet5000"},
    "precision='fp12' is unknown; allowed: fp32, tf32": {"precision": "fp12"},
    "global_batch_size=897 does not divide by 8": {"global_batch_size": "897"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_predicted_says_why(message: str) -> None:
    with pytest.raises(RowSkipped) as told:
        case_of(parse_samples(ROW | WRONG[message]))
    assert message in str(told.value)


def test_public_rows(public: Validation) -> None:
    """On one V100 or A100 7 % on the mean, of all rows 8 %, and the largest below 30 %."""
    rows = [row for row in public.rows if row.error is not None]
    assert len(rows) == 55
    single = [abs(row.error or 0.0) for row in rows if " dp1 " in row.plan and "100" in row.device]
    assert mean(single) < 0.07
    assert mean(abs(row.error or 0.0) for row in rows) < 0.08
    assert max(abs(row.error or 0.0) for row in rows) < 0.30


def test_networks_on_devices_that_nobody_had_measured() -> None:
    """Server GPUs within 7 % in the mean; GeForces are slow, most by convolutions in groups."""
    rows = validate([path for path in shipped_tables("vision") if path.stem in UNSEEN]).rows
    off = [(row.device, row.error) for row in rows if row.error is not None]
    servers = [abs(error) for device, error in off if "rtx" not in device]
    assert (len(off), len(servers)) == (61, 20)
    assert mean(servers) < 0.07
    assert mean(abs(error) for _, error in off) < 0.15


def test_speed_ups_of_pipelines(public: Validation) -> None:
    """torchgpipe on 2, 4 and 8 P40 beside one device (AmoebaNet: beside two, one micro-batch)."""
    speeds: dict[str, list[tuple[float, float]]] = {}
    for row in public.rows:
        if row.software == "torchgpipe" and row.predicted_step and row.measured_step:
            pair = (1.0 / row.predicted_step, 1.0 / row.measured_step)
            speeds.setdefault(row.model, []).append(pair)
    ratios = {
        model: [(p / pairs[0][0]) / (m / pairs[0][1]) - 1.0 for p, m in pairs[1:]]
        for model, pairs in speeds.items()
    }
    assert {model: len(errors) for model, errors in ratios.items()} == {
        "u-net-5-64": 4,
        "resnet101": 4,
        "amoebanet-d-18-256": 8,
    }
    assert mean(abs(error) for errors in ratios.values() for error in errors) < 0.12


def test_memory_of_whole_partitions_that_are_recomputed(public: Validation) -> None:
    """U-Net of 0.4 to 15.8 billion parameters on 1 to 8 P40, 20 to 154 GiB reserved in all."""
    errors = [row.memory_error for row in public.rows if row.memory_error is not None]
    assert len(errors) == 5
    assert mean(map(abs, errors)) < 0.10
    assert max(map(abs, errors)) < 0.12


def test_scaling_from_one_device_to_eight(public: Validation) -> None:
    times: dict[tuple[str, str, str], dict[str, tuple[float, float]]] = {}
    for row in public.rows:
        if row.error is None or row.software != "pytorch-ddp":
            continue
        degree = "8" if " dp8 " in row.plan else "1"
        key = (row.model, row.device, row.precision)
        assert row.predicted_step is not None
        assert row.measured_step is not None
        times.setdefault(key, {})[degree] = (row.predicted_step, row.measured_step)
    errors = [
        (both["1"][0] / both["8"][0]) / (both["1"][1] / both["8"][1]) - 1.0
        for both in times.values()
    ]
    assert len(errors) == 18
    assert mean(map(abs, errors)) < 0.05


def test_a_table_needs_its_columns(tmp_path: Path) -> None:
    from parsim.errors import TableError

    table = tmp_path / "mine.csv"
    table.write_text("row_id,strategy,samples_per_s\na,single,3\n", encoding="utf-8")
    with pytest.raises(TableError, match="columns missing: framework, model, gpu_type"):
        validate([table])
