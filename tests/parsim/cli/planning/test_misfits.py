"""Plans and spaces of which nothing fits: by how much, on which rank, and what would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parsim.units import format_bytes
from tests.commands import GPT3, LLAMA, ROOT, SMALL, Cli, settings

MEGATRON = str(ROOT / "scenarios" / "megatron-1t-dgx-a100.yaml")
LLAMA_70B = str(ROOT / "scenarios" / "llama3-70b-dgx-h100.yaml")


# --------------------------------------------------------------------------- nothing fits

TOO_LARGE = {
    "sharding": (LLAMA, ["plan.zero_stage=0"]),
    "recomputation": (MEGATRON, ["plan.recompute=none"]),
    "recomputation of a larger micro-batch": (
        GPT3,
        ["plan.recompute=none", "plan.microbatch_size=4"],
    ),
    "other degrees": (
        GPT3,
        ["plan.pp=1", "plan.dp=128", "plan.schedule=1f1b", "plan.v=1"],
    ),
    "two changes": (
        LLAMA_70B,
        ["plan.recompute=none", "plan.microbatch_size=8", "plan.schedule=gpipe", "plan.v=1"],
    ),
    "more nodes": (
        LLAMA,
        ["plan.zero_stage=0", "plan.recompute=full", "model.name=llama3-70b"],
    ),
}

MISS = re.compile(
    r"error: this plan does not fit: (?P<plan>.+) needs (?P<need>[\d.]+ GiB) on pipeline "
    r"rank (?P<rank>\d+), (?P<short>[\d.]+ GiB) more than (?P<have>[\d.]+ GiB) "
    r"\((?P<device>[\w-]+)\); its largest part is (?P<largest>\w+), (?P<amount>[\d.]+ GiB); "
    r"least change that fits: (?P<change>.+) "
    r"(\(step (?P<step>[\d.e+-]+) s\)|\(global batch (?P<batch>\d+)\))(; (?P<also>.+))?\n"
)


def overrides(advice: re.Match[str]) -> list[str]:
    """The advised change as `--set` options."""
    change = advice["change"].replace(" with ", " and ")
    pairs = []
    for word in change.split(" and "):
        nodes = re.fullmatch(r"(\d+) nodes", word)
        pairs.append(f"cluster.nodes={nodes[1]}" if nodes else f"plan.{word}")
    batch = [f"training.global_batch_size={advice['batch']}"] if advice["batch"] else []
    return settings(*pairs, *batch)


@pytest.mark.parametrize("case", TOO_LARGE)
def test_the_nearest_miss_is_that_of_the_prediction_and_its_advice_fits(
    cli: Cli, case: str
) -> None:
    scenario, pairs = TOO_LARGE[case]
    done = cli("simulate", scenario, "--json", *settings(*pairs))
    result, told = done.document, MISS.fullmatch(done.err)
    assert done.code == 3
    assert told is not None, done.err
    peaks = result["peak_allocated_bytes"]
    assert told["need"] == format_bytes(max(peaks))
    assert peaks[int(told["rank"])] == max(peaks)
    assert told["amount"] == format_bytes(max(result["memory_bytes"].values()))
    assert result["memory_bytes"][told["largest"]] == max(result["memory_bytes"].values())
    gib = [float(told[name].split()[0]) for name in ("need", "short", "have")]
    assert gib[0] == pytest.approx(gib[1] + gib[2], abs=0.11)  # each rounded to 0.1
    assert result["memory_fit"] == "does not fit"
    advised = cli("simulate", scenario, "--json", *settings(*pairs), *overrides(told))
    assert (advised.code, advised.err) == (0, "")
    if told["step"]:
        assert f"{advised.document['step_time_s']:.3g}" == told["step"]


def test_what_is_too_much_stands_in_the_table_too(cli: Cli) -> None:
    scenario, pairs = TOO_LARGE["sharding"]
    done = cli("simulate", scenario, *settings(*pairs))
    told = MISS.fullmatch(done.err)
    assert told is not None, done.err
    assert f"does not fit, {told['short']} too much" in done.out


def test_a_timeline_of_what_does_not_fit_is_drawn_with_a_note(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "x.png"
    done = cli("timeline", LLAMA, "-o", picture, *settings("plan.zero_stage=0"))
    assert done.code == 0
    first, second = done.err.splitlines()
    assert re.fullmatch(
        r"note: memory: does not fit, [\d.]+ GiB too much; see parsim simulate", first
    )
    assert second == f"timeline written to {picture}"


def test_a_search_where_nothing_fits(cli: Cli, tmp_path: Path) -> None:
    pairs = ["search.tp=1", "search.pp=1", "search.cp=1", "search.zero_stage=0"]
    done = cli("search", LLAMA, "--save", tmp_path / "x.yaml", *settings(*pairs))
    told = re.fullmatch(
        r"error: nothing fits: the nearest plan, tp1 pp1 dp8 mb1 m2 no-pipeline recompute-full, "
        r"needs [\d.]+ GiB on pipeline rank 0, [\d.]+ GiB more than [\d.]+ GiB "
        r"\(h100-sxm-80gb\); its largest part is optimizer, [\d.]+ GiB; least change "
        r"that fits: (\w+=\w+) \(step [\d.]+ s\)\n",
        done.err,
    )
    assert (done.code, done.out) == (3, "")
    assert told is not None, done.err
    assert not (tmp_path / "x.yaml").exists()
    plan = settings("plan.recompute=full", "plan.zero_stage=0", f"plan.{told[1]}")
    assert cli("simulate", LLAMA, *plan).code == 0


def test_a_search_with_nothing_legal(cli: Cli) -> None:
    pairs = ["search.tp=1", "search.pp=2", "search.v=2", "model.num_layers=1"]
    done = cli("search", SMALL, *settings("plan=null", "search.schedule=interleaved_1f1b", *pairs))
    # recompute 3 x micro-batches 1, 2, 4
    assert done == (
        3,
        "",
        "error: no plan is legal: 9 of 9 refused; most often: more stages than layers: "
        "pp=2 x v=2 = 4 stages for 1 layers, embedding, head; use pp x v <= 3\n",
    )


def test_a_search_whose_degrees_do_not_fill_the_cluster(cli: Cli) -> None:
    done = cli("search", LLAMA, *settings("search.tp=3"))
    assert done == (
        3,
        "",
        "error: no plan is legal: no tp x pp x dp of the space multiplies to the number of "
        "devices and divides the global batch; widen tp (3)\n",
    )


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["ep='>= 2'"], "widen ep (>= 2)"),
        (["etp='>= 2'"], "widen etp (>= 2)"),
        (["microbatch_size=3"], "widen microbatch_size (3)"),
        (["dp_shard=3"], "widen dp_shard (3)"),
        (["cp=3"], "widen cp (3)"),
        (["tp=[4]", "pp=[4]"], "widen tp (4) or pp (4)"),
    ],
)
def test_a_space_without_a_plan_names_the_axis_to_widen(
    cli: Cli, pairs: list[str], words: str
) -> None:
    done = cli("search", LLAMA, *settings(*(f"search.{pair}" for pair in pairs)))
    assert (done.code, done.out) == (3, "")
    assert f"; {words}" in done.err


def test_a_search_without_time_still_gives_a_plan(cli: Cli) -> None:
    done = cli("search", LLAMA, "--time-limit", 0, "--top", 1000, *settings("search.tp=1"))
    assert done.code == 0
    assert re.search(r"stopped by time limit after \d+ % of the legal plans: best so", done.out)


def test_one_device_is_told_of_hosts_and_adapters(cli: Cli, tmp_path: Path) -> None:
    """All of an 8B model does not fit; its states do in the host's memory, adapters here."""
    file = tmp_path / "one.yaml"
    assert cli("init", file, "--devices-per-node", 1, "--batch", 32).code == 0
    done = cli("search", file)
    assert done.code == 3
    assert re.search(r"; optimizer_offload=true is tight \(step [\d.]+ s\); model", done.err)
    assert done.err.endswith("; model.lora_rank=16 would train adapters alone (LoRA)\n")
    assert cli("search", file, *settings("model.lora_rank=16")).code == 0
    assert cli("search", file, *settings("search.optimizer_offload=true")).code == 0
