"""What is spoiled, and the command that reads it: every kind of file, and the options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from tests.commands import ROOT, SCENARIOS
from tests.fuzz import foreign, plans
from tests.fuzz.inputs import SMALL_ONES, Input, pairs, spoiled, text_of
from tests.fuzz.mutations import NAMES, mutated, value

SAMPLES = sorted((ROOT / "tests/parsim/cluster/importers/samples").iterdir())
CONFIGS = sorted((ROOT / "tests/parsim/model/configs").glob("*.json"))
TABLES = ROOT / "parsim" / "validation" / "data"
CATALOGS = (
    ROOT / "reports/hardware/cpu/device.yaml",
    ROOT / "parsim/cluster/catalog/devices.yaml",
    ROOT / "parsim/cluster/catalog/systems.yaml",
)


def scenario(random: Random) -> Input:
    """A spoiled scenario, for every command that takes one."""
    path = random.choice(SMALL_ONES if random.random() < 0.6 else SCENARIOS)
    return Input(words=_command(random, "s.yaml"), files=spoiled(random, path))


def overrides(random: Random) -> Input:
    """Hostile values behind `--set`."""
    path = random.choice(SMALL_ONES if random.random() < 0.6 else SCENARIOS)
    sets = [word for pair in pairs(random) for word in ("--set", pair)]
    return Input(words=(*_command(random, str(path)), *sets))


def _command(random: Random, path: str) -> tuple[str, ...]:
    """A command that reads a scenario."""
    command: tuple[str, ...] = random.choices(
        (
            ("check", path),
            ("simulate", path),
            ("simulate", path, "--events"),
            ("simulate", path, "--jitter-steps", "3"),
            ("search", path, "--time-limit", "1", "--save", "best.yaml"),
            ("timeline", path, "-o", random.choice(("t.json", "t.html"))),
            ("simulate", path, "--timeline", "t.json"),
            ("check", path, "--write-schedule", "w.csv"),
            ("run", path, "--emit", random.choice(("torchrun", "sbatch"))),
        ),
        (6, 10, 1, 1, 1, 1, 1, 1, 2),
    )[0]
    return (*command, "--json") if command[0] == "simulate" and random.random() < 0.3 else command


def contention(random: Random) -> Input:
    """A spoiled scenario or hostile values, on shared links: of small clusters, for it is slow."""
    path = random.choice((*SMALL_ONES, ROOT / "scenarios" / "llama2-7b-shared-fabric.yaml"))
    read = ("simulate", "s.yaml", "--contention")
    return Input(words=read, files=spoiled(random, path))


def schedule(random: Random) -> Input:
    """A spoiled schedule of one's own."""
    table = ROOT / "scenarios" / "gpt2-zero-bubble-cpu.csv"
    read = (str(table.with_suffix(".yaml")), "--set", "plan.schedule=own.csv")
    simulated = random.random() < 0.8
    words = ("simulate", *read) if simulated else ("run", *read, "--emit", "torchrun")
    return Input(words=words, files={"own.csv": mutated(random, text_of(table))})


def config(random: Random) -> Input:
    """A spoiled config.json of a model."""
    text = text_of(random.choice(CONFIGS))
    pairs = [*json.loads(text), "mlp_only_layers", "quantization_config"]
    if random.random() < 0.5:
        document = {**json.loads(text), random.choice(pairs): _json_value(random)}
        text = json.dumps(document)
    else:
        text = mutated(random, text)
    base = random.choice([path for path in SMALL_ONES if "bubble" not in path.stem])
    block = json.dumps({"config": str(Path("c.json").absolute()), "seq_len": 128})
    return Input(words=("simulate", str(base), "--set", f"model={block}"), files={"c.json": text})


def _json_value(random: Random) -> object:
    simple = (None, True, -1, 0, 1, 96, 10**9, 10**300, 1e308, 0.5, "", "x")
    return random.choice((*simple, [], [1], ["a"], {}, {"a": 1}))


def catalog(random: Random) -> Input:
    """A spoiled catalog file, shown, predicted with and swept over."""
    text = mutated(random, _piece(random, text_of(random.choice(CATALOGS))))
    words = random.choice(
        (
            ("catalog", "show", "my-cpu-x1", "--catalog", "d.yaml"),
            ("catalog", "show", "dgx-a100", "--nodes", "2", "--catalog", "d.yaml", "--json"),
            ("simulate", str(SMALL_ONES[0]), "--device", "d.yaml"),
            ("collectives", "--device", "d.yaml", "--sizes", "1MiB"),
        )
    )
    return Input(words=words, files={"d.yaml": text})


def _piece(random: Random, text: str) -> str:
    """The head of a catalog and one entry under a new name: reading all takes a second."""
    section = "systems:" if "\nsystems:\n" in text and random.random() < 0.5 else "devices:"
    body = text.partition(f"\n{section}\n")[2]
    entries = [entry for entry in body.split("\n  ") if entry[:1].isalpha()]
    if not entries:
        return text[:4000]
    at = random.randrange(len(entries))
    lines = body.split("\n")
    starts = [n for n, line in enumerate(lines) if line[:2] == "  " and line[2:3].isalpha()]
    last = starts[at + 1] if at + 1 < len(starts) else starts[at] + 60
    kept = "\n".join(lines[starts[at] + 1 : last])
    return f"{section}\n  my-own:\n{kept}\n"


def topology(random: Random) -> Input:
    """A spoiled topology."""
    path = random.choice(SAMPLES)
    text = mutated(random, text_of(path))
    if random.random() < 0.3:
        text = mutated(random, text_of(SAMPLES[0]))
    device = random.choice(((), ("--device", "h100-sxm-80gb"), ("--device", value(random))))
    return Input(words=("catalog", "import", "t.txt", "--as", "x", *device), files={"t.txt": text})


def table(random: Random) -> Input:
    """A spoiled table of measured runs, kernels or collectives, of a few rows."""
    kind = random.choice(("", "", "vision", "strategies", "kernels", "collectives"))
    header, *rows = text_of(random.choice(sorted((TABLES / kind).glob("*.csv")))).splitlines()
    kept = "\n".join([header, *random.sample(rows, min(len(rows), random.randint(1, 3)))])
    options = random.choice(((), ("-v",), ("--json",)))
    if kind in ("", "vision", "strategies") and random.random() < 0.2:
        options = (*options, "--report", "r.md")
    kinds = (f"--{kind}",) if kind in ("kernels", "collectives") else ()
    words = ("validate", "m.csv", *kinds, *options)
    return Input(words=words, files={"m.csv": mutated(random, f"{kept}\n")})


def timeline(random: Random) -> Input:
    """A spoiled timeline, drawn and compared."""
    from tests.fuzz.timelines import saved_timeline

    text = saved_timeline()
    words = random.choice(
        (
            ("timeline", "t.json", "-o", "x.json"),
            ("timeline", "t.json", "-o", "x.html", "--memory", "--critical"),
            ("compare", "t.json", "u.json"),
            ("compare", "u.json", "t.json", "--json"),
        )
    )
    return Input(words=words, files={"t.json": mutated(random, text), "u.json": text})


def options(random: Random) -> Input:
    """A command with options that it has, and hostile values."""
    command, paths, known = random.choice(_OPTIONS)
    words = [*command, *(str(random.choice(SMALL_ONES)) for _ in range(paths))]
    for option in random.sample(known, min(len(known), random.choice((1, 2, 3)))):
        written = option in _WRITTEN
        words += [option, random.choice(NAMES) if written else value(random)]
    return Input(words=tuple(words))


_WRITTEN = ("--save", "--out", "-o", "--timeline", "--write-schedule", "--report")
"""Options that name a file to write."""

_SHARED = ("--set", "--device", "--json")
_OPTIONS: tuple[tuple[tuple[str, ...], int, tuple[str, ...]], ...] = (
    (("check",), 1, (*_SHARED, "--write-schedule")),
    (
        ("simulate",),
        1,
        (*_SHARED, "--events", "--timeline", "--contention", "--beside", "--on", "--seed"),
    ),
    (("search", "--time-limit", "1"), 1, (*_SHARED, "--top", "--save")),
    (("timeline",), 1, (*_SHARED, "-o", "--until", "--memory", "--critical", "--beside", "--on")),
    (("compare",), 2, ("--tolerance", "-o", "--json")),
    (
        ("validate", str(TABLES / "torchtitan_public_8b.csv")),
        0,
        ("--kernels", "--collectives", "--report", "--json", "-v"),
    ),
    (
        ("run", "--emit", "torchrun"),
        1,
        ("--nnodes", "--rdzv-endpoint", "--steps", "--warmup", "--seed", "--out", "--timeout"),
    ),
    (
        ("collectives", "--sizes", "1MiB"),
        0,
        ("--system", "--nodes", "--ranks", "--group", "--kind", "--factor", "--algorithm",
         "--protocol", "--concurrent", "-v", "--json"),
    ),
    (
        ("collectives", "--system", "dgx-a100"),
        0,
        ("--nodes", "--ranks", "--group", "--kind", "--sizes", "--factor", "--concurrent"),
    ),
    (("catalog", "show"), 0, ("dgx-a100", "--nodes", "--catalog", "--failed", "-o", "--json")),
    (("catalog", "show", "dgx-h100"), 0, ("--nodes", "--failed", "--json")),
    (("catalog", "import"), 1, ("--as", "--out", "--device", "--replace")),
    (("catalog",), 0, ("devices", "systems", "models", "schedules", "software", "--json")),
)  # fmt: skip

TARGETS: Mapping[str, tuple[int, Callable[[Random], Input]]] = {
    "scenario": (5, scenario),
    "overrides": (5, overrides),
    "contention": (1, contention),
    "schedule": (2, schedule),
    "config": (3, config),
    "catalog": (3, catalog),
    "topology": (3, topology),
    "table": (3, table),
    "timeline": (2, timeline),
    "options": (3, options),
    "why": (1, plans.why),
    "guide": (1, plans.guide),
    "export": (2, plans.export),
    "sweep": (2, plans.sweep),
    "comparison": (1, plans.comparison),
    "strategy": (2, plans.strategy),
    "schedules": (2, plans.schedules),
    "space": (2, plans.space),
    "fields_of_a_plan": (2, plans.fields_of_a_plan),
    "launch_file": (3, foreign.launch_file),
    "model_file": (2, foreign.model_file),
    "packed": (1, foreign.packed),
    "partition": (2, foreign.partition),
    "recorded_run": (2, foreign.recorded_run),
}
"""Kinds of input by name: how often, and what makes one."""

ALONE: Mapping[str, Callable[[Random], Input]] = {"profile": foreign.profile}
"""Kinds that are too slow to be drawn; `--kind` asks for them."""
