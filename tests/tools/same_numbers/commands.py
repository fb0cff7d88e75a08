"""Commands of `same_numbers` beside scenarios: tables, systems, collectives, catalogs, devices."""

from __future__ import annotations

from collections.abc import Iterable

from tests.tools.same_numbers.case import SYSTEMS, Case, scenario

TABLES = (
    "korthikanti2022_step_time_22b_530b",
    "llm_foundry_public",
    "megatron_bridge_performance_public",
    "megatron_lm_readme_examples",
    "megatron_sc21_table1_weak_scaling",
    "megatron_sc21_table2_and_text",
    "nemo_performance_public",
    "nvidia_dgxc_benchmarking_public",
    "simumax_b200_real_vs_sim",
    "torchtitan_public_8b",
    "vtrain_multi_node_3p6b_18p4b",
    "vtrain_single_node_layers_12_20",
)
SAMPLES = (
    "dgx-a100.txt",
    "astra.yml",
    "bridged-pairs.txt",
    "h100-rings.xml",
    "lstopo.xml",
    "dgx-1v.txt",
    "v100-pair.xml",
    "h100-topology.xml",
)
CONFIGS = (
    "llama3-70b",
    "bert-large",
    "bert-base",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "llama2-7b",
    "llama3-8b",
    "qwen2-7b",
    "mistral-7b",
    "mixtral-8x7b",
    "gpt-oss-120b",
    "gpt2-xl",
    "gpt2",
    "llama3.1-405b",
)
"""Files of the importers' and the models' tests."""

CALIBRATED = ("llama-15m-1f1b", "llama-15m-fsdp", "gpt-7m-tp", "gpt-7m-ddp")
"""Runs of reports/hardware/cpu, whose device.yaml is a calibration."""


def validate_cases() -> Iterable[Case]:
    """Measured tables: each by itself, all at once, kernels and collectives."""
    for table in TABLES:
        words = ("validate", f"{{data:{table}.csv}}", "--json")
        quick = table in ("megatron_sc21_table1_weak_scaling", "torchtitan_public_8b")
        yield Case(id=f"validate/{table}", commands={"json": words}, quick=quick)
    forms = {"json": ("--json",), "text": ("-v",)}
    for kind in ("", "--kernels", "--collectives"):
        commands = {form: ("validate", *kind.split(), *more) for form, more in forms.items()}
        name = kind.strip("-") or "all"
        yield Case(
            id=f"validate/{name}",
            commands=commands,
            quick=bool(kind),
            seconds=120.0 if name == "all" else 3.0,
        )
    report = {"report": ("validate", "--report", "{out}/accuracy.md")}
    yield Case(id="validate/report", commands=report, seconds=100.0)
    curves = {
        "json": ("validate", "{data:curves.csv}", "--collectives", "--uncalibrated", "--json")
    }
    yield Case(id="validate/curves", commands=curves)


def system_cases() -> Iterable[Case]:
    """Every system: its graph, its collectives, and several groups at once."""
    for system in SYSTEMS:
        nodes = "1" if system == "cpu" else "4"
        name = ("--system", system)
        commands = {
            "show": ("catalog", "show", system, "--nodes", nodes, "--json"),
            "text": ("catalog", "show", system),
            "one": ("collectives", *name, "--json", "--factor", "4"),
            "all": ("collectives", *name, "--nodes", nodes, "--json", "--factor", "4"),
            "table": ("collectives", *name, "-v", "--sizes", "1MiB,1GiB"),
        }
        yield Case(id=f"system/{system}", commands=commands, quick=system == "dgx-h100")


def collectives_cases() -> Iterable[Case]:
    """Groups of a mesh, groups at once, forced algorithms, and a picture."""
    forms = {
        "concurrent": "--nodes 2 --ranks 2 --concurrent 4",
        "inside": "--group tp=4,dp=2 --sizes 1MiB..1GiB --factor 8",
        "across": "--nodes 4 --group tp=8,dp=4 --sizes 1MiB,64MiB",
        "ring": "--nodes 2 --algorithm ring --protocol Simple --sizes 8B..1GiB --factor 8",
        "tree": "--nodes 2 --algorithm tree --kind all_reduce",
        "nvls": "--algorithm nvls --sizes 1MiB,1GiB",
        "ranks": "--nodes 2 --ranks 6 --kind all_reduce,all_to_all,send_recv --factor 16",
        "picture": "--nodes 2 --factor 64 -o {out}/curves.svg",
        "wrong": "--nodes 2 --algorithm rign",
    }
    for system in ("dgx-h100", "dgx-a100", "aws-p5"):
        for form, words in forms.items():
            command = ("collectives", "--system", system, *words.split(), "--json")
            yield Case(
                id=f"collectives/{system}/{form}",
                commands={"json": command},
                quick=system == "dgx-h100" and form in ("concurrent", "across"),
            )


def catalog_cases() -> Iterable[Case]:
    """Lists, and a system with failed parts."""
    for kind in ("devices", "systems", "models", "schedules", "software"):
        commands = {"json": ("catalog", kind, "--json"), "text": ("catalog", kind)}
        yield Case(id=f"catalog/{kind}", commands=commands, quick=kind == "systems")
    failed = ("--failed", "nic:0.3", "--failed", "leaf:0.1->spine:0")
    show = ("catalog", "show", "dgx-h100", "--nodes", "64", *failed, "--json")
    picture = ("catalog", "show", "dgx-h100", "--nodes", "2", "-o", "{out}/picture.svg")
    yield Case(id="catalog/failed", commands={"json": show, "picture": picture})


def import_cases() -> Iterable[Case]:
    """What machines and model hubs print of themselves: topologies and config.json."""
    for sample in SAMPLES:
        words = ("catalog", "import", f"{{data:{sample}}}", "--as", "mine")
        commands = {"plain": words, "device": (*words, "--device", "h100-sxm-80gb")}
        yield Case(id=f"import/{sample}", commands=commands, quick=sample == "lstopo.xml")
    for config in CONFIGS:
        model = f"model={{config: '{{data:{config}.json}}'}}"
        options = (scenario("llama3-8b-dgx-h100"), "--json", "--set", model)
        commands = {"check": ("check", *options), "json": ("simulate", *options)}
        yield Case(id=f"config/{config}", commands=commands, quick=config == "gpt2")


def emit_cases() -> Iterable[Case]:
    """Scripts that run a plan."""
    for name in ("gpt2-small-cpu", "llama3-70b-dgx-h100"):
        for form in ("torchrun", "sbatch"):
            script = ("run", scenario(name), "--emit", form)
            commands = {"one": script, "several": (*script, "--nnodes", "8")}
            yield Case(id=f"emit/{name}/{form}", commands=commands, quick=form == "sbatch")


def calibrated_cases() -> Iterable[Case]:
    """Predictions with a file of `parsim calibrate`, and a measured timeline beside."""
    device = ("--device", "{data:device.yaml}")
    for name in ("gpt2-small-cpu", "gpt2-zb-v-cpu", "mixture-small-cpu"):
        commands = {
            "plain": ("simulate", scenario(name), "--json", "--timeline", "{out}/a.json"),
            "calibrated": (
                "simulate",
                scenario(name),
                "--json",
                *device,
                "--timeline",
                "{out}/b.json",
            ),
            "search": ("search", scenario(name), "--json", *device),
            "compare": ("compare", "{out}/a.json", "{out}/b.json", "--json"),
            "text": ("compare", "{out}/a.json", "{out}/b.json", "--tolerance", "9"),
            "overlay": ("compare", "{out}/a.json", "{out}/b.json", "-o", "{out}/both.svg"),
            "again": ("timeline", "{out}/b.json", "-o", "{out}/again.json"),
        }
        yield Case(id=f"calibrated/{name}", commands=commands, quick=name == "gpt2-zb-v-cpu")
    for run in CALIBRATED:
        words = ("simulate", f"reports/hardware/cpu/{run}/scenario.yaml", "--json", *device)
        yield Case(id=f"calibrated/{run}", commands={"json": words})


def command_cases() -> Iterable[Case]:
    """Every case of this file."""
    yield from validate_cases()
    yield from system_cases()
    yield from collectives_cases()
    yield from catalog_cases()
    yield from import_cases()
    yield from emit_cases()
    yield from calibrated_cases()
