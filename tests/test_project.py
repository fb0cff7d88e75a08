"""The project as a whole: what is shipped, what an import costs, what every module says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest

import parsim

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("matplotlib", "numpy", "pydantic", "simpy", "torch")


def python(*arguments: str, cwd: Path, path: Path | None = None) -> str:
    """Run this interpreter in `cwd` with nothing but `path` before its own packages."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules() -> list[Path]:
    """Every Python file of the two packages, relative to the root."""
    result = [
        path for package in ("parsim", "executor") for path in ROOT.glob(f"{package}/**/*.py")
    ]
    return sorted(path.relative_to(ROOT) for path in result)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    python("-m", "pip", "wheel", *options, str(ROOT), cwd=folder)
    (built,) = folder.glob("parsim_training-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the checkout that holds the wheel's contents and nothing else."""
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-index", "--target", str(target)]
    python("-m", "pip", "install", *options, str(wheel), cwd=target)
    return target


def test_the_wheel_holds_the_two_packages_and_their_data(wheel: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in ("parsim", "executor")
        for path in ROOT.glob(f"{package}/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert shipped == expected
    assert any(name.startswith("parsim/cluster/catalog/") for name in shipped)


def test_an_installed_wheel_is_what_python_imports(installed: Path, tmp_path: Path) -> None:
    script = "import parsim.cli.app, executor; print(parsim.cli.app.__file__)"
    where = python("-c", script, cwd=tmp_path, path=installed)
    assert Path(where.strip()).is_relative_to(installed)


@pytest.mark.parametrize("kind", ["devices", "systems", "models", "schedules"])
def test_an_installed_wheel_finds_its_catalog(installed: Path, tmp_path: Path, kind: str) -> None:
    listed = python("-m", "parsim", "catalog", kind, cwd=tmp_path, path=installed)
    example = {
        "devices": "a100-sxm-80gb",
        "systems": "dgx-a100",
        "models": "gpt3-175b",
        "schedules": "1f1b",
    }
    assert example[kind] in listed


@pytest.mark.parametrize("module", ["parsim", "parsim.cli.app"])
def test_an_import_loads_nothing_heavy(module: str, tmp_path: Path) -> None:
    script = f"import sys, {module}; print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    assert python("-c", script, cwd=tmp_path, path=ROOT).split() == []


@pytest.mark.parametrize("module", modules(), ids=str)
def test_every_module_has_a_docstring(module: Path) -> None:
    assert ast.get_docstring(ast.parse((ROOT / module).read_text(encoding="utf-8")))


def test_the_version_is_the_newest_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[?(\d[^\]\s]*)", changelog, re.MULTILINE)
    assert headings[0] == parsim.__version__


def test_the_wheel_is_called_otherwise_than_a_strangers_package(wheel: Path) -> None:
    """The package index holds an unrelated `parsim`; import and command keep the name."""
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(f"{folder}/METADATA").decode()
        commands = archive.read(f"{folder}/entry_points.txt").decode()
    assert "\nName: parsim-training\n" in metadata
    assert f"\nVersion: {parsim.__version__}\n" in metadata
    assert "parsim = parsim.__main__:main" in commands


def test_nobody_is_told_to_install_a_strangers_package() -> None:
    """Every hint names the checkout, or a package that the project depends on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {normal_name(name) for name in chain(*project["optional-dependencies"].values())}
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
    texts += map(ROOT.joinpath, modules())
    hints = [
        (path, name)
        for path in texts
        for name in re.findall(
            r"pip install (?:-\S+ )*'?([\w.-]+)", path.read_text(encoding="utf-8")
        )
    ]
    assert len(hints) > 4
    assert {name for _, name in hints} <= needed | {"."}, hints


def test_the_map_of_the_house_names_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = [path.parent for path in ROOT.glob("parsim/*/__init__.py")]
    inner = [path.parent for path in ROOT.glob("parsim/sim/*/__init__.py")]
    assert len(rooms) > 20
    assert not [room.name for room in rooms if f"parsim/{room.name}/" not in text]
    assert not [room.name for room in inner if not re.search(rf"^ +.*\b{room.name}/", text, re.M)]


def normal_name(requirement: str) -> str:
    """The name of a requirement without its version, written the one way (PEP 503)."""
    return re.sub("[-_.]+", "-", re.split("[<>=]", requirement)[0]).lower()


def test_the_constraints_pin_every_direct_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normal_name(line) for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)}
    assert {normal_name(name) for name in needed} - pinned == set()


def test_the_executor_says_how_it_is_used(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "executor"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("usage: python -m executor")
    assert "Traceback" not in done.stderr
