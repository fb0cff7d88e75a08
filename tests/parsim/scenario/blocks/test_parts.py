"""A scenario is read into its parts, whatever its form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from parsim.model.reader import model_spec
from parsim.scenario import load_scenario
from tests.parsim.scenario.blocks.written import load

ROOT = Path(__file__).parents[4]


def test_the_parts_of_a_scenario(tmp_path: Path) -> None:
    scenario = load(tmp_path, description="  one line\n")
    assert (scenario.name, scenario.description, scenario.path) == (
        "s",
        "one line",
        tmp_path / "s.yaml",
    )
    assert scenario.spec == model_spec("gpt2")
    assert scenario.job.model.parameters == 124_439_808
    assert (scenario.job.cluster.num_devices, scenario.job.device.id) == (8, "a100-sxm-80gb")
    assert (scenario.job.software.id, scenario.global_batch_size) == ("generic", 16)
    assert (scenario.space, scenario.notes, scenario.catalog) == (None, (), ())


def test_yaml_and_json_read_the_same(tmp_path: Path) -> None:
    text = """\
    model: {name: gpt2}   # a comment
    cluster:
      system: dgx-a100
      nodes: 1
    software: generic
    training:
      global_batch_size: 16
      precision: bf16
    plan:
    """
    (tmp_path / "y.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "bom.yaml").write_text(text, encoding="utf-8-sig")
    from_yaml, from_json = load_scenario(tmp_path / "y.yaml"), load(tmp_path)
    assert (from_yaml.job, from_yaml.plan) == (from_json.job, from_json.plan)
    assert load_scenario(str(tmp_path / "bom.yaml")).plan == from_json.plan


def test_importing_the_reader_loads_no_parser() -> None:
    code = (
        "import sys, parsim.scenario; "
        "print(sorted({'pydantic', 'ruamel.yaml', 'matplotlib', 'simpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
