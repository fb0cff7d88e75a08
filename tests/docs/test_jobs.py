"""The page of common jobs: its commands run one after another, in an empty folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, runner
from tests.docs.test_pages import commands

JOBS = ROOT / "docs" / "jobs.md"
WITH_TORCH = ("profile", "calibrate", "run", "compare run/")
"""Commands that start processes with torch; tests of their own run them."""
NOTHING_FITS = "parsim search one.yaml"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 \\
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --bf16 \\
  --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --vocab-size 50257
"""


def lines() -> Iterator[str]:
    """The commands of the page in their order, without those that need torch or a minute."""
    for line in commands(JOBS):
        words = line.removeprefix("parsim ")
        if not words.startswith((*WITH_TORCH, "validate")) and words != "why first.yaml":
            yield line


@pytest.mark.slow
def test_the_jobs_of_the_page_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "pretrain.sh").write_text(SCRIPT, encoding="utf-8")
    cli, asked = runner(capsys), list(dict.fromkeys(lines()))
    assert len(asked) > 30
    for line in asked:
        done = cli(*shlex.split(line)[1:])
        assert done.code == (3 if line == NOTHING_FITS else 0), f"{line}: {done.err}"
