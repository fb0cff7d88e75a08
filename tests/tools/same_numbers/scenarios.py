"""Shipped scenarios of `same_numbers`: checked, simulated, drawn and searched."""

from __future__ import annotations

from collections.abc import Iterable

from tests.tools.same_numbers.case import Case, Words, scenario, settings

SCENARIOS = {
    "bert-large-dgx-1v": 0.6,
    "gpt-6x8x64-hybrid": 34.0,
    "gpt2-small-cp-cpu": 0.3,
    "gpt2-small-cpu": 0.3,
    "gpt2-zb-v-cpu": 0.3,
    "gpt2-zero-bubble-cpu": 0.2,
    "gpt3-175b-dgx-a100": 14.0,
    "llama2-7b-shared-fabric": 1.5,
    "llama3-70b-dgx-h100": 1.5,
    "llama3-70b-h100-a100": 0.5,
    "llama3-8b-dgx-h100": 0.7,
    "llama3-8b-fp8-dgx-h100": 0.6,
    "llama3.1-405b-dgx-h100": 0.8,
    "megatron-1t-dgx-a100": 4.0,
    "mixture-small-cpu": 0.4,
    "qwen3-30b-a3b-dgx-h100": 1.2,
}
"""Shipped scenarios, and how many seconds the search of each takes."""

LARGE = {
    "gpt-6x8x64-hybrid": "training.global_batch_size=384",
    "gpt3-175b-dgx-a100": "training.global_batch_size=384",
    "llama3.1-405b-dgx-h100": "",
    "megatron-1t-dgx-a100": "training.global_batch_size=384",
}
"""Scenarios whose timelines take long, and settings that make them shorter."""

UNSEARCHED = frozenset({"gpt-6x8x64-hybrid"})
"""Scenarios whose search takes a minute; `space/hybrid` searches a part of it."""

QUICK = frozenset(
    {
        "gpt2-small-cpu",
        "gpt2-zb-v-cpu",
        "gpt2-zero-bubble-cpu",
        "llama2-7b-shared-fabric",
        "llama3-70b-h100-a100",
        "llama3-8b-dgx-h100",
        "mixture-small-cpu",
        "qwen3-30b-a3b-dgx-h100",
    }
)
"""Scenarios of the short run."""


def simulated(path: str, *shorter: str, steps: int) -> dict[str, Words]:
    """What is asked of every shipped scenario's plan."""
    jitter = ("--jitter-steps", str(steps), "--seed", "3")
    return {
        "check": ("check", path, "--json"),
        "text": ("simulate", path),
        "json": ("simulate", path, "--json"),
        "timeline": ("simulate", path, "--json", "--timeline", "{out}/timeline.json", *shorter),
        "jitter": ("simulate", path, "--json", *jitter, *shorter),
        "contention": ("simulate", path, "--json", "--contention", *shorter),
    }


def drawn(path: str, *shorter: str) -> dict[str, Words]:
    """Timelines in every form, and the schedule as a file."""
    return {
        "trace": ("timeline", path, "-o", "{out}/trace.json", *shorter),
        "html": ("timeline", path, "-o", "{out}/page.html", *shorter),
        "svg": ("timeline", path, "-o", "{out}/picture.svg", "--memory", "--critical", *shorter),
        "shared": ("timeline", path, "-o", "{out}/shared.json", "--contention", *shorter),
        "schedule": ("check", path, "--write-schedule", "{out}/schedule.csv"),
    }


def scenario_cases() -> Iterable[Case]:
    """Every shipped scenario: simulated, on the tier of events, drawn and searched."""
    for name, seconds in SCENARIOS.items():
        path, large, quick = scenario(name), name in LARGE, name in QUICK
        shorter = settings(LARGE.get(name, ""))
        plans = simulated(path, *shorter, steps=5 if large else 50)
        yield Case(
            id=f"simulate/{name}",
            commands=plans,
            quick=quick or name in ("llama3-70b-dgx-h100", "gpt3-175b-dgx-a100"),
            seconds=8.0 if large else 1.0,
        )
        events = {"json": ("simulate", path, "--json", "--events")}
        yield Case(id=f"events/{name}", commands=events, quick=quick)
        yield Case(
            id=f"timeline/{name}",
            commands=drawn(path, *shorter),
            quick=quick and ("cpu" in name or "a100" in name),
            seconds=20.0 if large else 3.0,
        )
        if name not in UNSEARCHED:
            result = {"json": ("search", path, "--json", "--top", "50")}
            yield Case(id=f"search/{name}", commands=result, quick=quick, seconds=seconds)


def search_cases() -> Iterable[Case]:
    """Searches on shared links, saved and simulated again, and as text."""
    for name in ("llama3-8b-dgx-h100", "llama3-70b-h100-a100", "llama2-7b-shared-fabric"):
        words = ("search", scenario(name), "--contention", "--top", "5")
        yield Case(id=f"search-contention/{name}", commands={"json": (*words, "--json")})
    for name in ("gpt2-small-cpu", "llama3-8b-fp8-dgx-h100", "llama3-70b-h100-a100"):
        again = {
            "text": ("search", scenario(name), "--save", "{out}/best.yaml"),
            "best": ("simulate", "{out}/best.yaml", "--json", "--contention"),
        }
        yield Case(id=f"search-save/{name}", commands=again, quick=name == "gpt2-small-cpu")
