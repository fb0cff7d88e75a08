"""Torch is asked for by version before anything of it is used."""

from __future__ import annotations

import importlib.metadata

import pytest

from executor.torch_internals.version import require_torch
from parsim.errors import InputError


def test_missing_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(InputError, match=r"pip install 'torch>=2\.11'$"):
        require_torch()


@pytest.mark.parametrize("version", ["1.13.1", "2.10.0+cu128"])
def test_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    with pytest.raises(InputError, match=r"too old.*allowed: 2\.11 or newer"):
        require_torch()


@pytest.mark.parametrize("version", ["2.11.0+cu130", "2.13.0", "3.0.0a0+git1"])
def test_new_torch_is_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert require_torch() == version
