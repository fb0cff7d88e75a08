"""A scenario that is right, and what the reader says where it is made wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import InputError, alternatives
from parsim.scenario import load_scenario
from parsim.scenario.schema.file import BLOCKS

# Line numbers in the messages below count in this text.
SCENARIO = """\
description: eight A100s
model:
  name: gpt2
cluster:
  system: dgx-a100
  nodes: 1
training:
  global_batch_size: 16
plan:
  tp: 4
search:
"""

NEAREST = (
    "nearest of 23: 1f1b, eager_1f1b, interleaved_1f1b, zb_h1, zb_1p (all of them: parsim catalog "
    "schedules)"
)


def of_keys(word: str, *path: str) -> str:
    return alternatives(word, BLOCKS[path].model_fields)


def wrong(
    folder: Path, content: str | bytes, overrides: dict[str, str] | None = None
) -> InputError:
    """The error of a file, its folder cut off."""
    path = folder / "s.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        load_scenario(path, overrides or {})
    assert caught.value.exit_code == 2
    return type(caught.value)(str(caught.value).replace(f"{folder}/", ""))


def changed(old: str, new: str) -> str:
    assert SCENARIO.count(old) == 1
    return SCENARIO.replace(old, new)
