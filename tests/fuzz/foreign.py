"""Inputs that other programs wrote: launch files, graphs of layers, model files, recorded runs."""

from __future__ import annotations

import gzip
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from parsim.frameworks.export import export_plan
from parsim.model.graph.catalog import network
from parsim.model.graph.document import graph_text
from parsim.scenario import load_scenario
from tests.commands import GPT3, LLAMA, ROOT
from tests.fuzz.inputs import Input, pairs, text_of
from tests.fuzz.mutations import mutated, spoiled_bytes, value
from tests.parsim.frameworks.reading.read_back import SCRIPT
from tests.parsim.frameworks.reading.test_reading import TITAN
from tests.parsim.launch.test_recorded_runs import run_of

GRAPHS = sorted((ROOT / "tests/parsim/partition/profiles").glob("*.graph.txt"))
TRACE = ROOT / "tests/parsim/model/graph/profiles/linear.trace.json.gz"
IMAGES = ROOT / "scenarios" / "resnet50-dgx-1v.yaml"


VARIABLES = """\
TP=${TP:-2}; export PP=4
GPUS=$((TP * PP * (1 + 1)))
if [[ $FP8 == 1 ]]; then ARGS+=("--fp8-format hybrid" --squared-relu); fi
torchrun --nproc_per_node $GPUS --nnodes=1 pretrain_hybrid.py --tensor-model-parallel-size $TP \\
  --hybrid-layer-pattern M-M*-M-E/M* --num-experts 8 --mamba-num-heads 64 --hidden-size 2048 \\
  --num-attention-heads 16 --seq-length ${1:-4096} --micro-batch-size 1 --bf16 --sequence-parallel
"""
"""A launch script with variables, conditions and layers of one part each."""


@cache
def launch_files() -> tuple[str, ...]:
    """Launch files as people write them, and as `parsim export` does."""
    exported = [
        export_plan(load_scenario(Path(path)), load_scenario(Path(path)).fixed_plan(), framework)
        for path, framework in ((GPT3, "megatron"), (LLAMA, "torchtitan"))
        if load_scenario(Path(path)).plan is not None
    ]
    return (SCRIPT, TITAN, VARIABLES, *exported)


def launch_file(random: Random) -> Input:
    """A spoiled launch file of Megatron-LM or torchtitan."""
    text = random.choice(launch_files())
    name = "t.toml" if text.startswith("[") or "\n[" in text else "t.sh"
    options = random.choice(
        ((), (), ("--nodes", value(random)), ("--system", value(random)), ("-o", "s.yaml"))
    )
    return Input(words=("import-config", name, *options), files={name: mutated(random, text)})


@cache
def model_files() -> tuple[tuple[str, str], ...]:
    """Names and texts of model files: of `parsim profile`, PipeDream's and torch's profilers."""
    written = graph_text(network("resnet18", 64, 10))
    small = min(GRAPHS, key=lambda path: path.stat().st_size)
    trace = gzip.decompress(TRACE.read_bytes()).decode()
    return (("m.yaml", written), ("m.graph.txt", text_of(small)), ("m.json", trace))


def model_file(random: Random) -> Input:
    """A spoiled model file in a scenario."""
    name, text = random.choice(model_files())
    block = f'{{"file": "{Path(name).absolute()}"}}'
    command, *more = random.choice(
        (("simulate",), ("simulate", "--events"), ("check",), ("guide",), ("why",))
    )
    sets = [word for pair in pairs(random) for word in ("--set", pair)]
    words = (command, str(IMAGES), "--set", f"model={block}", *more)
    return Input(
        words=(*words, *(sets if random.random() < 0.2 else ())),
        files={name: mutated(random, text)},
    )


def packed(random: Random) -> Input:
    """A file that gzip packed, with spoiled bytes: a trace of a model, or a scenario."""
    if random.random() < 0.5:
        name, content = TRACE.name, TRACE.read_bytes()
        block = f'{{"file": "{Path(name).absolute()}"}}'
        words: tuple[str, ...] = ("simulate", str(IMAGES), "--set", f"model={block}")
    else:
        name, content = "s.yaml", gzip.compress(text_of(IMAGES).encode(), mtime=0)
        words = (random.choice(("check", "simulate")), name)
    return Input(words=words, files={name: spoiled_bytes(random, content)})


def partition(random: Random) -> Input:
    """A spoiled graph of layers, or hostile levels and options."""
    text = text_of(random.choice(GRAPHS))
    levels = [f"{random.choice(('2', '4'))}@10GB/s" for _ in range(random.choice((1, 1, 2)))]
    options: tuple[str, ...] = ()
    if random.random() < 0.5:
        text = mutated(random, text)
    elif random.random() < 0.5:
        levels[-1] = random.choice((f"{value(random)}@10GB/s", f"4@{value(random)}", value(random)))
    else:
        options = random.choice(
            (
                *(("--mode", value(random)), ("--memory", value(random)), ("--transfers",)),
                *(("--compression", value(random)), ("--straight",), ("--json",)),
            )
        )
    words = [word for level in levels for word in ("--level", level)]
    return Input(words=("partition", "g.txt", *words, *options), files={"g.txt": text})


@cache
def recorded_files() -> dict[str, str]:
    """What a run leaves, the calibrated file that it corrects, and its scenario."""
    with tempfile.TemporaryDirectory() as folder:
        run = run_of(Path(folder))
        files = [run / "run.json", run / "timeline.json", *Path(folder).glob("*.yaml")]
        return {file.name: file.read_text(encoding="utf-8") for file in files}


def recorded_run(random: Random) -> Input:
    """A recorded run with one file spoiled, that corrects a calibrated file or is compared."""
    files = dict(recorded_files())
    name = random.choice(("run.json", "run.json", *files))
    words = random.choice(
        (
            *(("calibrate", "--from", "run.json", "--out", "device.yaml"),) * 3,
            ("compare", "run.json", "run.json", "--json"),
        )
    )
    return Input(words=words, files={**files, name: mutated(random, files[name])})


def profile(random: Random) -> Input:
    """A module that cannot be found, or batches that it cannot take; torch starts for each."""
    text = "from torch import nn\ndef build():\n    return nn.Linear(4, 2)\n"
    module = random.choice(("m.py:build", "m.py:build", f"m.py:{value(random)}", value(random)))
    sizes = random.choice(("2x4", value(random)))
    return Input(words=("profile", module, "--input", sizes, "-o", "m.yaml"), files={"m.py": text})
