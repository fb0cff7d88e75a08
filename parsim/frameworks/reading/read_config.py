"""Find out what a launch file is, and make a scenario of it that reads without a mistake."""

from __future__ import annotations

import re
import tomllib
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parsim.cluster.reader import load_catalog
from parsim.errors import InputError, ParsimError
from parsim.files import read_text
from parsim.frameworks.reading.described_job import GUESSED, DescribedJob
from parsim.frameworks.reading.megatron import megatron_job
from parsim.frameworks.reading.torchtitan import torchtitan_job
from parsim.scenario import load_scenario


def read_config(path: Path, system: str, nodes: int | None) -> tuple[str, tuple[str, ...]]:
    """The YAML of a scenario, and what had to be assumed or was not read.

    Args:
        path: Megatron-LM's arguments (a shell script or the arguments alone), or torchtitan's TOML.
        system: a name of the catalog.
        nodes: of it; None: as many as the file, or its plan, needs.

    Raises:
        InputError: the file cannot be read, is neither, or describes a job that cannot be.
        CatalogError: an unknown system.
    """
    known = load_catalog().system(system)
    devices = None if nodes is None else nodes * known.devices_per_node
    job = _job(path, read_text(path), devices)
    text = _yaml(job, job.document(known, nodes, path.name))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            load_scenario(file)
        except ParsimError as error:
            message = re.sub(rf"{re.escape(str(file))}(:\d+)*:? ?", "", str(error))
            asked = f"; {GUESSED} ({job.guessed}): give --nodes"
            asked = asked if job.guessed and nodes is None else ""
            raise InputError(f"{path}: {job.in_its_words(message)}{asked}") from None
    return text, job.assumed(known, nodes)


def _job(path: Path, text: str, devices: int | None) -> DescribedJob:
    try:
        if path.suffix.lower() != ".toml":
            return megatron_job(text)
        return torchtitan_job(_toml(text), devices)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _toml(text: str) -> dict[str, Any]:
    """What a TOML text says."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(error)) from None
    except RecursionError:
        raise InputError("brackets are nested too deeply") from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise InputError("a number is too long") from None


def _yaml(job: DescribedJob, document: dict[str, object]) -> str:
    from ruamel.yaml import YAML

    yaml, text = YAML(), StringIO()
    yaml.width = 100
    yaml.default_flow_style = False
    yaml.dump(document, text)
    return text.getvalue()
