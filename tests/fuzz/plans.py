"""Inputs of the commands that weigh plans against one another, and of those that hand them on."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from random import Random

from parsim.plan.strategies import STRATEGY_KINDS
from tests.commands import ROOT
from tests.fuzz.inputs import SMALL_ONES, Input, key, pairs, spoiled, text_of
from tests.fuzz.mutations import mutated, value

PLANNED = [path for path in SMALL_ONES if "\nplan:" in text_of(path)]
IMAGES = [ROOT / "scenarios" / f"{name}.yaml" for name in ("resnet18-small-cpu", "resnet50-dgx-1v")]
REPLICATED = [ROOT / "scenarios" / "bert-large-parameter-server.yaml", *IMAGES]
FRAMEWORKS = (
    *("megatron", "megatron-bridge", "torchtitan", "deepspeed", "accelerate", "torchrun"),
    *("sbatch", "csv"),
)


def _read(random: Random, paths: list[Path]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Words that read a scenario, spoiled itself or by its overrides, and its files."""
    path = random.choice(paths)
    if random.random() < 0.5:
        return ("s.yaml",), spoiled(random, path)
    return (str(path), *_sets(pairs(random))), {}


def _sets(pairs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for pair in pairs for word in ("--set", pair))


def why(random: Random) -> Input:
    """Why not another plan, of a spoiled scenario or with a hostile wish."""
    words, files = _read(random, SMALL_ONES)
    if random.random() < 0.6:
        degrees = ("tp", "pp", "dp", "cp", "v")
        wished = (*degrees, "microbatch_size", "schedule", "zero_stage", "offload_layers", "x")
        wishes = [
            f"{random.choice(wished)}={random.choice(('1', '2', '4', value(random)))}"
            for _ in range(random.choice((1, 1, 2)))
        ]
        words = (*words, "--not", ",".join(wishes))
    return Input(words=("why", *words, *_json(random)), files=files)


def guide(random: Random) -> Input:
    """The strategies side by side, of a spoiled scenario."""
    words, files = _read(random, [*SMALL_ONES, *IMAGES])
    return Input(words=("guide", *words, *_json(random)), files=files)


def export(random: Random) -> Input:
    """The launch file of a framework, of a spoiled scenario."""
    words, files = _read(random, PLANNED)
    framework = value(random) if random.random() < 0.1 else random.choice(FRAMEWORKS)
    return Input(words=("export", *words, "--to", framework), files=files)


def sweep(random: Random) -> Input:
    """Every combination of hostile values, some also searched, shared out and written."""
    words, files = _read(random, SMALL_ONES)
    over: list[str] = []
    for _ in range(random.choice((1, 1, 2))):
        swept = random.choice(("plan.tp", "plan.microbatch_size", "cluster.nodes", key(random)))
        values = [
            random.choice(("1", "2", "4", value(random))) for _ in range(random.randint(1, 3))
        ]
        over += ["--over", f"{swept}={','.join(values)}"]
    more = random.choice(
        ((), (), ("--best",), ("--weak",), ("-o", "w.csv"), ("--part", value(random)))
    )
    if more == ("-o", "w.csv") and random.random() < 0.5:  # goes on with rows of another sweep
        files["w.csv"] = mutated(random, "plan.tp,step_time_s,error\n1,0.1,\n2,,does not fit\n")
    return Input(words=("sweep", *words, *over, *more, *_json(random)), files=files)


def comparison(random: Random) -> Input:
    """Two plans and more side by side, some of them spoiled."""
    first, second = random.choices(PLANNED, k=2)
    again = ("s.yaml",) if random.random() < 0.2 else ()
    words = ("compare", "s.yaml", str(random.choice((first, second))), *again, *_json(random))
    return Input(words=words, files=spoiled(random, first))


def strategy(random: Random) -> Input:
    """A data-parallel strategy with hostile options, simulated in every way."""
    path = random.choice(REPLICATED)
    name = random.choice([*STRATEGY_KINDS, value(random)])
    kind = STRATEGY_KINDS.get(name)
    options = [option.name for option in fields(kind)] if kind else []
    options = options if options and random.random() < 0.9 else ["x"]
    chosen = random.sample(options, random.randint(0, min(2, len(options))))
    given = ", ".join(
        f"{option}: {random.choice(('1', '2', '0.5', value(random)))}" for option in chosen
    )
    block = f"{{name: {name}{', ' if given else ''}{given}}}"
    words = random.choice(
        (
            *(("simulate",), ("simulate", "--events"), ("simulate", "--contention"), ("check",)),
            *(("timeline", "-o", "t.json"), ("simulate", "--jitter-steps", "2")),
        )
    )
    read = (words[0], str(path), *words[1:])
    sets = _sets((f"plan.strategy={block}", *(pairs(random) if random.random() < 0.3 else ())))
    return Input(words=(*read, *sets))


_SPACE = {
    "space": ("quick", "full"),
    "tp": ('"<= 2"', "[1, 2]"),
    "zero_stage": ('"<= 1"', "3"),
    "offload_layers": ("[0, 1]", "2"),
    "schedule": ("[1f1b, zb_v]", "[gpipe]"),
    "recompute_modules": ("[none, mlp+layernorm]", "[none]"),
    "rank_order": ("[pp-dp-cp-tp, dp-pp-cp-tp]", "[cp-dp-pp-tp]"),
    "cp_comm_type": ("[p2p, all_gather]", "[a2a]"),
    "overlap_p2p": ("[true, false]", "true"),
    "dp_shard": ('"<= 2"', "2"),
    "memory_cap": ("1GiB", "60GiB"),
    "max_bubble": ("0.05", "0.5"),
    "unequal_stages": ("true", "false"),
    "strategies": ("[parameter_server]", "[{name: local_sgd, every: 8}]", "[ring]"),
    "synchronous": ("true", "false"),
}
"""Keys of `search:`, each with values that it takes in some scenario."""

_PLAN = {
    "cp": ("2", "4"),
    "cp_comm_type": ("p2p", "all_gather", "a2a", "a2a+p2p"),
    "offload_layers": ("1", "4"),
    "rank_order": ("pp-dp-cp-tp", "dp-pp-cp-tp"),
    "recompute_modules": ("mlp+layernorm", "core_attn"),
    "stage_layers": ("[2, 2]", "[1, 1, 1, 1]", "[0, 4]"),
    "gradient_precision": ("fp32", "same"),
    "strategy": ("{name: local_sgd, every: 4}", "parameter_server"),
    "overlap_param_gather": ("true", "false"),
    "scatter_p2p": ("true", "false"),
}
"""Keys of `plan:`, with values that each may have."""


def _chosen(random: Random, keys: dict[str, tuple[str, ...]], block: str) -> tuple[str, ...]:
    """A few keys, most with a value that they take, so that they meet one another."""
    names = random.sample(list(keys), random.choice((1, 2, 3)))
    values = [
        value(random) if random.random() < 0.25 else random.choice(keys[name]) for name in names
    ]
    return _sets(tuple(f"{block}.{name}={each}" for name, each in zip(names, values, strict=True)))


def space(random: Random) -> Input:
    """A search whose block's keys meet one another, some with hostile values."""
    path = str(random.choice([*SMALL_ONES, *IMAGES]))
    command = random.choice(("search", "search", "search", "why"))
    limit = ("--time-limit", "1") if command == "search" else ()
    words = (command, path, *limit, *_chosen(random, _SPACE, "search"), *_json(random))
    return Input(words=words)


def fields_of_a_plan(random: Random) -> Input:
    """A plan whose newer fields meet one another, simulated and handed on."""
    path = str(random.choice(PLANNED))
    rest = random.choice(
        (("simulate",), ("simulate", "--events"), ("check",), ("export", "--to", "megatron"))
    )
    words = (rest[0], path, *rest[1:], *_chosen(random, _PLAN, "plan"))
    return Input(words=words)


_SHAPES = (
    *(("--pp", "3"), ("-m", "8"), ("--v", "3"), ("--times", "1,2,1,0.1")),
    ("--only", "1f1b,zb_v,interleaved_1f1b"),
)
"""Options of `parsim schedules`, each with a value that it takes."""


def schedules(random: Random) -> Input:
    """All pipeline schedules side by side, with hostile sizes and times."""
    words: list[str] = []
    if random.random() < 0.3:
        words += ["--scenario", str(random.choice(PLANNED)), *_sets(pairs(random))]
        words += ["--auto", "auto.csv"] if random.random() < 0.3 else []
    else:
        for option, usual in random.sample(_SHAPES, 2):
            words += [option, usual if random.random() < 0.6 else value(random)]
    return Input(words=("schedules", *words, *_json(random)))


def _json(random: Random) -> tuple[str, ...]:
    return ("--json",) if random.random() < 0.3 else ()
