"""From the blocks of a file to the records; the larger blocks have files of their own."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cluster.background import Background, Stream, check_network
from parsim.cluster.groups import in_groups
from parsim.cluster.hardware import Cluster
from parsim.cost.jitter import Jitter
from parsim.cost.job import OPTIMIZERS, Job
from parsim.cost.software import GENERIC, Software, changed_switches, software, with_switches
from parsim.model.graph.pipedream import DEVICE
from parsim.model.graph.record import Graph
from parsim.model.model import Model
from parsim.model.reader import Description, build_model
from parsim.plan import Plan, PlanSpace
from parsim.plan.names import AUTO
from parsim.plan.rules.executor.training import wrong_update
from parsim.scenario.hardware import build_cluster, catalog_files
from parsim.scenario.model import build_description
from parsim.scenario.plan import build_plan
from parsim.scenario.positions import Tree
from parsim.scenario.record import Scenario
from parsim.scenario.schema.file import ScenarioFile
from parsim.scenario.schema.without_effect import without_effect
from parsim.scenario.search_space import build_space
from parsim.sim.cuts import with_better_cut
from parsim.sim.orders.auto import auto_schedule
from parsim.training_run import Failures, TrainingGoal
from parsim.units import format_count, whole_number


def build_scenario(tree: Tree, file: ScenarioFile) -> Scenario:
    """Build every record and check that they fit together.

    Raises:
        ScenarioError: a name is unknown, model or cluster cannot be built as described, a slow
            rank is no number or none of the plan's, or a stream cannot run on the cluster.
        PlanError: the plan, or what a search's plans share, is not legal.
        ScheduleError: the plan's schedule is a file that is wrong or does not fit.
    """
    notes: list[str] = []
    job, description = _job(tree, file, notes)
    if file.plan is None and file.search is None:
        neither = "has no plan block and no search block"
        raise tree.error((), f"{neither}; add 'search: {{}}' to search every legal plan")
    written = build_plan(tree, file, job, notes)
    space = build_space(tree, file, job, written)
    notes += without_effect(file, job, written)
    notes += _refused_run(job, written)
    plan = _decided(job, written, space, notes)
    return Scenario(
        name=tree.file.stem,
        description=file.description.strip(),
        path=tree.file,
        job=job,
        model=description,
        plan=plan,
        space=space,
        notes=tuple(notes),
        catalog=catalog_files(tree, file.cluster),
        jitter=_jitter(tree, file, plan),
        background=_background(tree, file, job.cluster),
        goal=_goal(tree, file, job),
    )


def _job(tree: Tree, file: ScenarioFile, notes: list[str]) -> tuple[Job, Description]:
    """What is trained on what, and the description that its model is built from."""
    if not file.states_precision:
        notes.append(f"precision is not stated: '{file.training.precision}' is assumed")
    stack = _software(tree, file, notes)
    description = build_description(tree, file.model, stack, notes)
    cluster = build_cluster(tree, file.cluster, notes)
    if isinstance(description, Graph) and description.device:
        notes.append(_timed_elsewhere(description, cluster))
        notes += _of_mini_batches(description)
    model = build_model(description)
    if isinstance(description, Graph):
        notes += _other_parameters(description, model)
    job = Job(
        model=model,
        cluster=cluster,
        software=stack,
        global_batch_size=file.training.global_batch_size,
        optimizer=OPTIMIZERS[file.training.optimizer],
        clip=file.training.clip,
    )
    return job, description


def _refused_run(job: Job, written: Plan | None) -> Iterator[str]:
    """A note where parsim's own executor will not run the plan as it is written."""
    if written is not None and job.software.executor:
        refused = wrong_update(written, job.model, job.clip)
        if refused:
            yield f"`parsim run` refuses this plan: {refused}"


def _decided(
    job: Job, written: Plan | None, space: PlanSpace | None, notes: list[str]
) -> Plan | None:
    """The written plan with what it leaves to parsim: its cut, and an order of its actions."""
    if written is None:
        return None
    margin = space.memory_margin if space else None
    plan = with_better_cut(job, written, margin)
    if plan.schedule != AUTO:
        return plan
    auto = auto_schedule(job, plan, margin)
    notes.append(auto.words())
    return auto.plan


def _timed_elsewhere(graph: Graph, cluster: Cluster) -> str:
    """The note that some operations have measured seconds, which are those of another device."""
    told = f"model {graph.name} has operations that were timed on {graph.device}"
    devices = ", ".join(sorted({group.system.device.id for group in in_groups(cluster).groups}))
    return f"{told}; their seconds are taken as they are: on {devices} they take others"


def _of_mini_batches(graph: Graph) -> Iterator[str]:
    """A note that a sample is many, where a profile does not say how many."""
    if graph.device == DEVICE:
        yield (
            f"a sample of {graph.name} is the whole mini-batch that was profiled, whose size a "
            f"graph.txt does not say; parsim profile {graph.path} --input BATCHxSIZES makes a "
            "file of single samples"
        )


def _other_parameters(graph: Graph, model: Model) -> Iterator[str]:
    """A note where a profiled module has other parameters than the operations of its file."""
    stated = graph.profiled_parameters
    if stated and stated != model.parameters:
        yield (
            f"model {graph.name} has {model.parameters:,} parameters in its file's operations, but "
            f"the module that was profiled has {stated:,}: memory and gradients are off by as much"
        )


def _goal(tree: Tree, file: ScenarioFile, job: Job) -> TrainingGoal:
    """How long one trains at what price; what the file leaves out has a default with a source.

    Raises:
        ScenarioError: a whole run of fewer tokens than a step takes.
    """
    names = ("tokens", "usd_per_device_hour", "pue")
    given = {name: value for name, value in file.training.given().items() if name in names}
    batch = job.global_batch_size or 1
    step = batch * job.model.tokens
    if given.get("tokens", step) < step:
        amount = format_count(given["tokens"])
        raise tree.error(
            ("training", "tokens"),
            f"{amount} are fewer than a step's {batch:,} x {job.model.tokens:,} = "
            f"{step:,}; K M B T are thousands to trillions, e.g. 300B",
        )
    interruptions = file.failures.given()
    return TrainingGoal(
        **given, failures=Failures(**interruptions, stated=frozenset(interruptions))
    )


def _software(tree: Tree, file: ScenarioFile, notes: list[str]) -> Software:
    if "software" not in file.given():
        notes.append(f"software is not stated: '{GENERIC}' is assumed")
        return software(GENERIC)
    switches = file.software.given()
    with tree.located("software"):
        stack = with_switches(software(switches.pop("name")), switches)
    if changed_switches(stack):
        listed = ", ".join(f"{name}={value}" for name, value in changed_switches(stack).items())
        notes.append(f"software {stack.id} with {listed}: its measured runs may have had others")
    return stack


def _jitter(tree: Tree, file: ScenarioFile, plan: Plan | None) -> Jitter:
    """How ranks and steps differ; what the block leaves out has a default with a source."""
    given = file.jitter.given()
    stated = frozenset(given)
    slow = given.pop("slow_ranks", {})
    ranks = tuple(sorted((_rank(tree, name), factor) for name, factor in slow.items()))
    jitter = Jitter(**given, slow_ranks=ranks, stated=stated)
    if plan is not None:
        with tree.located("jitter"):
            jitter.check(plan.world_size)
    return jitter


def _rank(tree: Tree, name: str) -> int:
    rank = whole_number(name)
    if rank is None or name != str(rank):
        raise tree.error(
            ("jitter", "slow_ranks", name),
            "is no rank; write its number and how much slower it is, e.g. 'slow_ranks: {17: 1.2}'",
        )
    return rank


def _background(tree: Tree, file: ScenarioFile, cluster: Cluster) -> Background:
    """The traffic that shares the links with the steps, for tier C."""
    block = file.background
    streams = tuple(Stream(name=name, **stream.given()) for name, stream in block.streams.items())
    background = Background(streams=streams, storage_bandwidth=block.storage_bandwidth)
    with tree.located("background"):
        background.check()
        check_network(background, cluster.system.network is not None, cluster.system.id)
    return background
