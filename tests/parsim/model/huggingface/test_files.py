"""Every error of the config.json reader that is about the file, word for word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.model.config.file import read_config
from tests.parsim.model.huggingface.refused import LLAMA


def refusal(path: Path) -> str:
    with pytest.raises(ScenarioError) as error:
        read_config(path)
    return str(error.value)


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert read_config(path) == LLAMA
    assert read_config(tmp_path) == LLAMA, "the folder of a model"


def test_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert read_config(path) == LLAMA


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    expected = f"{path}: no such file; give the path of a Hugging Face config.json"
    assert refusal(path) == expected


def test_folder_without_a_config(tmp_path: Path) -> None:
    expected = f"{tmp_path}/config.json: no such file; give the path of a Hugging Face config.json"
    assert refusal(tmp_path) == expected


def test_path_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("{}")
    assert refusal(path / "config.json") == f"{path}/config.json: cannot be read: Not a directory"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', "3:3 not JSON: Expecting ',' delimiter"),
        ("", "1:1 not JSON: Expecting value"),
        ("model_type: llama", "1:1 not JSON: Expecting value"),
    ],
)
def test_file_that_is_not_json(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert refusal(path) == f"{path}:{where}"


@pytest.mark.parametrize(("text", "kind"), [("[1]", "list"), ("3", "int"), ("null", "NoneType")])
def test_file_that_is_no_object(tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert refusal(path) == (
        f'{path}:1:1 must be a JSON object like {{"model_type": "llama", ...}}, got a {kind}'
    )


def test_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": "\xff"}')
    assert refusal(path) == f"{path}: is not UTF-8 text: byte 0xff at 7"


def test_file_that_is_nested_without_end(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" * 200_000)
    assert refusal(path) == f"{path}: not JSON that can be read: nested too deeply"
