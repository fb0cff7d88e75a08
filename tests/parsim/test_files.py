"""Files that people hand over: what is no regular file, or endless, is refused in words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from parsim.cluster.importers import import_topology
from parsim.cluster.reader import load_catalog
from parsim.errors import InputError, ScenarioError, did_you_mean, shown
from parsim.files import read_json, read_text
from parsim.model.config.file import read_config
from parsim.scenario import load_scenario
from parsim.timelines.reader import load_timeline
from parsim.validation.kernel.measured_kernel import read_kernel_table
from parsim.validation.validate import read_table
from tests.commands import SMALL

DEVICE = Path("/dev/zero")
DEEP = "[" * 5000 + "]" * 5000
READERS: dict[str, Callable[[Path], object]] = {
    "scenario": load_scenario,
    "catalog": lambda path: load_catalog([path]),
    "config": read_config,
    "schedule": lambda path: load_scenario(SMALL, {"plan.schedule": f"{path}"}),
    "timeline": load_timeline,
    "topology": import_topology,
    "runs": read_table,
    "kernels": read_kernel_table,
}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe that nobody writes to, under a name that every reader takes."""
    os.mkfifo(tmp_path / "pipe.csv")
    return tmp_path / "pipe.csv"


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_wants_a_regular_file(reader: str, pipe: Path) -> None:
    with pytest.raises(InputError, match="is no regular file but a device, a pipe or a socket"):
        READERS[reader](pipe)


@pytest.mark.skipif(not DEVICE.exists(), reason="a device of Linux")
@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"schedule"}))
def test_no_reader_reads_an_endless_device(reader: str) -> None:
    with pytest.raises(InputError, match=r"^/dev/zero: is no regular file"):
        READERS[reader](DEVICE)


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_has_a_limit(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: takes no disk
    with pytest.raises(InputError, match=r"has more than \d+.* which no file of its kind needs"):
        READERS[reader](path)


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        *((DEEP, reader) for reader in sorted(READERS.keys() - {"schedule"})),
        ("topology: " + DEEP + "\nnpus_count: 1", "topology"),
        *(("{a: " * 5000, reader) for reader in sorted(READERS.keys() - {"schedule"})),
    ],
)
def test_brackets_nested_without_end(reader: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"deep\.json"):
        READERS[reader](path)


def test_the_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n")
    assert read_text(tmp_path / "a.txt") == "one\r\n", "without the byte order mark"
    (tmp_path / "a.json").write_text('{"a": [1]}')
    assert read_json(tmp_path / "a.json") == {"a": [1]}


def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: embedded null byte"):
        read_text(tmp_path / "a\0b", error=ScenarioError, near=(".yaml",))


def test_values_in_messages() -> None:
    assert shown("x" * 80) == "x" * 80
    assert shown("x" * 81) == "x" * 77 + "..."
    assert shown("a\nb\x1b[2J") == r"a\nb\x1b[2J", "nothing that a terminal obeys"
    assert shown(10**5000) == "a number of thousands of digits"
    assert did_you_mean("x" * 10**6, ["x" * 10**6]) == "", "a name of no length is compared"


def test_a_name_that_no_file_can_have_is_cut() -> None:
    with pytest.raises(InputError, match=r"^Q{77}\.\.\.: cannot be read: File name too long$"):
        read_text(Path("Q" * 5000))


def test_a_number_of_too_many_digits_in_a_topology_is_named(tmp_path: Path) -> None:
    file = tmp_path / "graph.xml"
    gpu = f'<gpu dev="0x{"f" * 400}"/>'
    channel = f'<channel><net dev="0"/>{gpu}<net dev="0"/></channel>'
    file.write_text(f'<graphs version="1"><graph id="0" pattern="4">{channel}</graph></graphs>')
    with pytest.raises(ScenarioError, match=r"<gpu> dev='0xf.*must be a number"):
        import_topology(file, device="h100-sxm-80gb")


def test_a_missing_file_s_path_is_whole_but_for_endless_names(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["folder" * 5] * 5) / "scenario.yaml"
    with pytest.raises(InputError, match=f"^{re.escape(str(deep))}: no such file"):
        read_text(deep)
    with pytest.raises(InputError, match=f"{'Q' * 77}\\.\\.\\.: no such file"):
        read_text(tmp_path / ("Q" * 90))
