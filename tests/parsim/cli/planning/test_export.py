"""`parsim export` and `parsim import-config`."""

from __future__ import annotations

from pathlib import Path

from tests.commands import GPT3, Cli


def test_there_and_back(cli: Cli, tmp_path: Path) -> None:
    script, again = tmp_path / "train.sh", tmp_path / "again.yaml"
    assert cli("export", GPT3, "--to", "megatron", "-o", str(script)).code == 0
    words = ("--system", "dgx-a100", "--nodes", "128", "-o", str(again))
    read = cli("import-config", str(script), *words)
    assert (read.code, "not read" in read.err) == (0, False)
    assert "tp8 pp8 dp16 mb1 m96" in cli("check", str(again)).out


def test_a_plan_that_the_target_cannot_express(cli: Cli) -> None:
    done = cli("export", GPT3, "--to", "accelerate")
    assert done.code == 2
    assert "accelerate cannot run tp8 pp8" in done.err
    assert cli("export", GPT3, "--to", "nemo").code == 2
    titan = cli("export", GPT3, "--to", "torchtitan", "--set", "plan.zero_stage=2").err
    assert titan.endswith(
        f"; for plans that it runs: parsim search {GPT3} --set software=torchtitan\n"
    )
    same = ("--set", "software=torchtitan", "--set", "plan.zero_stage=2")
    assert "for plans" not in cli("export", GPT3, "--to", "torchtitan", *same).err


def test_files_that_are_kept(cli: Cli, tmp_path: Path) -> None:
    done = cli("export", GPT3, "--to", "csv", "-o", GPT3)
    assert done.code == 2
    assert "would overwrite the input" in done.err
