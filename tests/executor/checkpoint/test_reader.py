"""A checkpoint that somebody else wrote may hold anything; reading it must not run it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import distributed as dist  # noqa: E402
from torch.distributed import checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.metadata import BytesStorageMetadata  # noqa: E402

from executor.checkpoint.reader import Reader  # noqa: E402
from parsim.errors import InputError  # noqa: E402


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Path]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = {"model/w": torch.arange(6.0).view(2, 3), "half": torch.ones(2, dtype=torch.bfloat16)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path / "saved"))
    yield tmp_path / "saved"
    dist.destroy_process_group()


def edited(folder: Path, edit: Callable[[Any], object]) -> None:
    path = folder / ".metadata"
    document = pickle.loads(path.read_bytes())
    document = edit(document) or document
    path.write_bytes(pickle.dumps(document))


def load(folder: Path) -> dict[str, Any]:
    state = {"model/w": torch.zeros(2, 3), "half": torch.zeros(2, dtype=torch.bfloat16)}
    dcp.load(state, storage_reader=Reader(folder))
    return state


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(folder)
    return str(caught.value)


def test_what_torch_wrote_is_read(saved: Path) -> None:
    state = load(saved)
    assert state["model/w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state["half"].tolist() == [1, 1]


class Call:
    """What unpickles as a call of a function with one argument."""

    def __init__(self, function: Callable[..., Any], argument: object) -> None:
        self.call = (function, (argument,))

    def __reduce__(self) -> Any:
        return self.call


def test_a_table_that_calls_a_function(saved: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    edited(saved, lambda _: Call(Path.touch, trap))
    told = refused(saved)
    assert "is damaged: it cannot be read safely (pathlib.Path.touch is not part of" in told
    assert not trap.exists()


def test_an_entry_that_torch_would_unpickle(saved: Path, tmp_path: Path) -> None:
    """Entries that are no tensors reach `torch.load(weights_only=False)`."""
    trap = tmp_path / "trap"

    def unpickled(document: Any) -> None:
        document.state_dict_metadata["model/w"] = BytesStorageMetadata()
        for index, where in document.storage_data.items():
            if index.fqn == "model/w":
                torch.save(Call(Path.touch, trap), saved / where.relative_path)
                size = (saved / where.relative_path).stat().st_size
                where.offset, where.length = 0, size

    edited(saved, unpickled)
    assert "BytesStorageMetadata is not part of" in refused(saved)
    assert not trap.exists()


def elsewhere(document: Any) -> None:
    for where in document.storage_data.values():
        where.relative_path = "../other"


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (elsewhere, "../other is not beside it"),
        (lambda _: {"a": 1}, "no table of contents"),
        (lambda document: setattr(document, "state_dict_metadata", 3), "has no attribute 'items'"),
    ],
    ids=["elsewhere", "no table", "no entries"],
)
def test_a_table_that_is_wrong(saved: Path, edit: Callable[[Any], object], told: str) -> None:
    edited(saved, edit)
    assert told in refused(saved)


@pytest.mark.parametrize("content", [b"", b"\x80\x05.", b"cos\nsystem\n(S'true'\ntR."])
def test_a_table_that_is_no_pickle(saved: Path, content: bytes) -> None:
    (saved / ".metadata").write_bytes(content)
    assert "is damaged: it cannot be read safely" in refused(saved)
