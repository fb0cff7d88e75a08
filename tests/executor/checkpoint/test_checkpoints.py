"""Checkpoints: what is whole and what is refused, and that going on from one changes nothing."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from executor.checkpoint.folder import (
    clean,
    final_folder,
    part_folder,
    prune,
    publish,
    start_from,
    whole,
)
from executor.checkpoint.record import FORMAT, checksum, same_plan, what_is_trained, write_record
from parsim.cli.app import main
from parsim.errors import InputError
from parsim.model.reader import model_spec
from parsim.plan import Plan
from parsim.report.text.run import run_view
from tests.executor.launch import fork_runs, launch
from tests.executor.running import SCENARIO

WORKER = Path(__file__).parents[1] / "workers" / "checkpoint.py"
PLAN = Plan(pp=2, num_microbatches=2)
MODEL = {"name": "gpt2", "num_layers": 4}


def trained(**changes: Any) -> dict[str, Any]:
    given = {"plan": PLAN, "model": MODEL, "seed": 0, "tokens": b"text", **changes}
    return what_is_trained(**given)


def save(root: Path, step: int) -> Path:
    """A checkpoint of two small files."""
    part = part_folder(root, step, 0)
    part.mkdir(parents=True)
    (part / "tensors.json").write_text("names")
    (part / "rank-00000.safetensors").write_text("values")
    names = ("tensors.json", "rank-00000.safetensors")
    write_record(part, trained(), {name: checksum(part / name) for name in names})
    publish(part, final_folder(root, step))
    return final_folder(root, step)


def start(root: Path, **changes: Any) -> Path | None:
    asked = {"resume": True, "restarted": False, "every": 5, "last_step": 100, **changes}
    return start_from(root, asked.pop("trained", trained()), **asked)


def test_the_newest_whole_one_is_gone_on_from(tmp_path: Path) -> None:
    save(tmp_path, 5)
    newest = save(tmp_path, 100)
    for lacking in ("tensors.json", "plan.json"):
        (final_folder(tmp_path, 200) / lacking).mkdir(parents=True)
    part_folder(tmp_path, 300, 0).mkdir()
    assert start(tmp_path) == newest


def test_a_restart_goes_on_by_itself(tmp_path: Path) -> None:
    assert start(tmp_path, resume=False, restarted=True) is None
    newest = save(tmp_path, 5)
    assert start(tmp_path, resume=False, restarted=True) == newest
    assert start(tmp_path, resume=False, restarted=True, every=0) is None


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--resume: there is no whole checkpoint in .*; name the"):
        start(tmp_path / "none")


def test_a_new_run_does_not_mix_with_an_earlier_one(tmp_path: Path) -> None:
    save(tmp_path, 5)
    with pytest.raises(InputError, match="holds checkpoints of an earlier run, the newest step-"):
        start(tmp_path, resume=False)
    assert start(tmp_path, resume=False, every=0) is None


def test_a_checkpoint_past_the_end(tmp_path: Path) -> None:
    save(tmp_path, 5)
    assert start(tmp_path, last_step=5) is not None
    with pytest.raises(InputError, match=r"is past the 4 steps asked for .*; ask for more --steps"):
        start(tmp_path, last_step=4)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            trained(plan=replace(PLAN, num_microbatches=4)),
            "was written by batch 2, this is 4; resume with the same training.global_batch_size, ",
        ),
        (
            trained(model={**MODEL, "num_layers": 8}),
            "was written by model 'gpt2' with num_layers=4, this is with num_layers=8; resume ",
        ),
        (trained(seed=1), "was written by seed 0, this is 1; resume with the same --seed, or "),
        (
            trained(optimizer="sgd"),
            "was written by optimizer adamw, this is sgd; resume with the same --optimizer, or ",
        ),
        (trained(tokens=b"texts"), "was written by data 4 bytes of tokens, crc32 "),
        (
            trained(tokens=b"tex", held_out=True),
            "was written by a run that did not keep the last twentieth of its text for "
            "evaluations; resume without --eval-every, or ",
        ),
    ],
    ids=["batch", "model", "seed", "optimizer", "data", "evaluations"],
)
def test_what_another_run_wrote_is_refused(
    tmp_path: Path, other: dict[str, Any], told: str
) -> None:
    folder = save(tmp_path, 5)
    with pytest.raises(InputError, match=re.escape(f"checkpoint {folder} {told}")):
        start(tmp_path, trained=other)


def test_a_checkpoint_that_does_not_name_its_optimizer(tmp_path: Path) -> None:
    """One from before that was written down is gone on from, whatever the optimizer."""
    folder = save(tmp_path, 5)
    document = json.loads((folder / "plan.json").read_text())
    older = {key: document[key] for key in document if key not in ("optimizer", "held_out")}
    (folder / "plan.json").write_text(json.dumps(older))
    assert start(tmp_path, trained=trained(optimizer="sgd", held_out=True)) == folder
    with pytest.raises(InputError, match="and with --eval-every or without as then"):
        start(tmp_path, trained=trained(tokens=b"tex", held_out=True))


def test_another_plan_goes_on(tmp_path: Path) -> None:
    folder = save(tmp_path, 5)
    assert start(tmp_path, trained=trained(plan=Plan(dp_replicate=2))) == folder


def test_another_name_of_the_model_is_the_same_model(tmp_path: Path) -> None:
    folder = save(tmp_path, 5)
    assert start(tmp_path, trained=trained(model={**MODEL, "name": "mine"})) == folder


def test_a_checkpoint_from_before_a_field_was_there(tmp_path: Path) -> None:
    """It is of the same model while the new field says nothing, and of another one else."""
    now = asdict(model_spec("llama3-8b"))
    new = {"window", "router_aux_loss_coef", "groups_per_token"}
    old = {key: value for key, value in now.items() if key not in new}
    assert new <= set(now)
    folder = final_folder(tmp_path, 5)
    save(tmp_path, 5)
    document = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**document, "model": old}))
    assert start(tmp_path, trained=trained(model=now)) == folder
    with pytest.raises(InputError, match=r"'llama3-8b' with window=0, this is with window=8; "):
        start(tmp_path, trained=trained(model={**now, "window": 8}))
    (folder / "plan.json").write_text(json.dumps({**document, "model": {**old, "gone": 1}}))
    with pytest.raises(InputError, match="with gone=1, this is with gone=None; "):
        start(tmp_path, trained=trained(model=now))


def test_a_plan_from_before_a_field_was_there() -> None:
    plan = PLAN.to_json()
    assert same_plan({key: plan[key] for key in plan if key != "recompute"}, plan)
    assert not same_plan(plan, {**plan, "recompute": "full"})
    assert not same_plan({**plan, "gone": 1}, plan)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("rank-00000.safetensors", "value", "is damaged: 5 of 6 bytes; "),
        ("rank-00000.safetensors", None, "is damaged: it is missing; "),
        ("plan.json", '{"format": 2', "is damaged: it cannot be read (InputError); "),
        ("plan.json", "[]", "is damaged: it cannot be read (TypeError); "),
    ],
)
def test_a_damaged_checkpoint_is_stepped_over(
    tmp_path: Path, name: str, content: str | None, told: str
) -> None:
    path = save(tmp_path, 5) / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    notes: list[str] = []
    told = f"checkpoint file {path} {told}"
    with pytest.raises(InputError, match=re.escape(f"{told}no checkpoint before it is whole: ")):
        start(tmp_path, tell=notes.append)
    assert start(tmp_path, tell=notes.append, resume=False, restarted=True) is None
    assert notes == [f"{told}no checkpoint before it is whole: training begins again at step 0"]
    before = save(tmp_path, 4)
    assert start(tmp_path, tell=notes.append) == before
    assert notes[1:] == [f"{told}training goes on from step-00000004 instead"]


def test_a_checkpoint_whose_damage_only_its_readers_saw(tmp_path: Path) -> None:
    before, newest = save(tmp_path, 4), save(tmp_path, 5)
    notes: list[str] = []
    assert start(tmp_path, damages={newest: "spoilt"}, tell=notes.append) == before
    assert notes == ["spoilt; training goes on from step-00000004 instead"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 5) / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT + 1}))
    with pytest.raises(InputError, match=r"checkpoints of format 3 cannot be read; allowed: 2"):
        start(tmp_path)


def test_a_checkpoint_replaces_what_is_not_whole(tmp_path: Path) -> None:
    (final_folder(tmp_path, 5) / "odd").mkdir(parents=True)
    save(tmp_path, 5)
    assert [path.name for path in whole(tmp_path)] == ["step-00000005"]


def test_the_newest_two_are_kept_and_what_is_unfinished_goes(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        save(tmp_path, step)
    part_folder(tmp_path, 20, 3).mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    prune(tmp_path)
    clean(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["notes.txt", "step-00000010", "step-00000015"]


@pytest.mark.parametrize(("restarts", "n"), [(0, 4), (1, 4), (2, 0)])
def test_the_text_of_a_run_says_what_was_timed(restarts: int, n: int) -> None:
    measure = pytest.importorskip("executor.measure.steps")
    spread = measure.Spread.of([0.5] * n)
    speed = 100.0 if n else None
    document = {
        "predicted": {"step_time_s": 0.5, "peak_allocated_bytes": [1.0], "memory_fit": "fits"},
        "measured": {
            "step_time_s": spread.to_json(),
            "peak_allocated_bytes": [1.0],
            "bubble_fraction": 0.1,
            "tokens_per_s": speed,
            "mfu": speed,
            "loss": [2.0, 1.0],
            "restarts": restarts,
            "recording_cost": 0.01,
        },
        "error": {"step_time": None if not n else 0.0, "peak_memory": 0.0},
        "verify": None,
        "device": "cpu",
    }
    stream = io.StringIO()
    Console(file=stream, width=120).print(run_view(document, "out"))
    told = stream.getvalue()
    times = {1: "once", 2: "2 times"}
    assert (f"started again {times.get(restarts)}; steps before" in told) == bool(restarts)
    assert ("no step is timed: none was left behind the warm-up (n = 0)" in told) == (n == 0)
    assert ("over 4 steps" in told) == (n == 4)


# Real ranks


@pytest.mark.distributed
@pytest.mark.parametrize("which", ["often", pytest.param("all", marks=pytest.mark.slow)])
def test_going_on_changes_nothing(which: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    on_two = _launched(tmp_path, 2, which)
    on_four = _launched(tmp_path, 4, which, str(tmp_path / "2"))
    _check_failures(on_two, tmp_path / "2")
    for entry in (on_two, on_four):
        plans = {name for name, case in entry[0].items() if "weights" in case}
        assert len(plans) >= 5
        for name in plans:
            for case in (rank[name] for rank in entry):
                through, again = case["losses"]
                assert (case["before"], len(through)) == (2, 4), name
                assert through == again, name
                assert case["weights"] == 0.0, name
    _check_other_plans(on_two[0]["chains"], on_four[0]["chains"])


def _launched(folder: Path, ranks: int, *words: str) -> list[Any]:
    subfolder = folder / str(ranks)
    subfolder.mkdir()
    return launch(WORKER, *words, ranks=ranks, folder=subfolder, timeout=240.0)


def _check_other_plans(on_two: dict[str, Any], on_four: dict[str, Any]) -> None:
    """Whatever plan goes on from the second step, on as many ranks or on others: same losses."""
    for experts in ("0", "4"):
        through, _ = on_two[experts][0]
        pairs = [*on_two[experts], *on_four[experts], (through, on_four[f"from {experts}"])]
        for expected, again in pairs:
            assert again == pytest.approx(expected, rel=1e-6)
            assert again[3] < 0.95 * again[0]


def _check_failures(by_rank: list[Any], folder: Path) -> None:
    writes, waits = by_rank[1]["failing save"], by_rank[0]["failing save"]
    part = folder / "full" / ".step-00000002.part0"
    assert writes["said"] == [
        "InputError",
        f"cannot write {part}: File too large; choose another folder with --checkpoints, or free "
        f"space there",
    ]
    assert waits["said"] == ["PeerError", "rank 1 failed at the checkpoint"]
    assert writes["left"] == ["step-00000001"]
    path = folder / "full" / "step-00000001" / "rank-00001.safetensors"
    told = f"checkpoint file {path} is damaged: its checksum is wrong; "
    none_left = (
        f"{told}no checkpoint before it is whole: name another folder with --checkpoints, or leave "
        f"--resume out to begin at step 0"
    )
    assert by_rank[0]["damaged"]["said"] == ["InputError", none_left]
    # that of the newest is stepped over, and both ranks go on from the other one
    assert [rank["stepped over"]["before"] for rank in by_rank] == [1, 1]
    newest = told.replace("step-00000001", "step-00000002")
    assert by_rank[0]["stepped over"]["told"] == [
        f"{newest}training goes on from step-00000001 instead"
    ]
    assert by_rank[1]["stepped over"]["told"] == []
    assert by_rank[0]["pruned"] == ["step-00000006", "step-00000008"]


@pytest.mark.distributed
def test_a_checkpoint_of_another_training_ends_with_2_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    fork_runs(monkeypatch, tmp_path)
    folder = save(tmp_path / "saved", 5)
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    words = ["run", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--resume"]
    assert main([*words, "--checkpoints", str(folder.parent)]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(
            f"error: checkpoint {folder} was written by batch 2, this is 8; resume with the same "
        )
    )
    assert not (tmp_path / "out").exists()
