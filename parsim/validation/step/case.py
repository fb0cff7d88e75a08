"""From a measured run to what parsim predicts: model, cluster, software and plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import NARROW
from parsim.errors import InputError, shown
from parsim.model.transformer import TransformerSpec, build_transformer, with_options
from parsim.plan import Plan
from parsim.plan.rules.violation import violation
from parsim.sim.step.action_times import with_action_times
from parsim.validation.step.assumptions import assumptions_for
from parsim.validation.step.case_cluster import case_cluster
from parsim.validation.step.case_model import case_model
from parsim.validation.step.case_plan import case_plan
from parsim.validation.step.case_software import case_software
from parsim.validation.step.known_models import known_mixture, known_model
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.model_family import BERT_NOTE, has_gate, is_named, model_family
from parsim.validation.step.recipes import Recipe, offload_layers, recipe_of, repeated_modules
from parsim.validation.tables import RowSkipped

ONE_DIGIT = "one digit"
"""A cell of `step_time_from` of a time that its source prints as about so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCase:
    """What a prediction is of: job and plan; `notes` say what had to be assumed for them."""

    job: Job
    plan: Plan
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(PredictedCase):
    """A run of a transformer made predictable."""

    run: MeasuredRun

    @property
    def format_assumed(self) -> bool:
        """Whether the device computes in formats of 8 bits or fewer and the run names no format.

        Such a run may have taken half the assumed time or less, so that its error says little.
        """
        return self.run.precision is None and any(
            name in self.job.device.peak_flops for name in NARROW
        )

    @property
    def says_little(self) -> bool:
        """Whether its error takes part in no interval: a format guessed, or a time of one digit."""
        return self.format_assumed or self.run.step_time_from == ONE_DIGIT


def build_case(run: MeasuredRun) -> Case:
    """Build model, system, software and plan of a measured run.

    Raises:
        RowSkipped: something about the run cannot be simulated yet.
    """
    assumed, name, notes = assumptions_for(run.stack)
    recipe = recipe_of(run) if run.n_experts else None
    stack = case_software(run, name, recipe)
    try:
        cluster, cluster_notes = case_cluster(run, load_catalog())
        model = build_transformer(_predicting(case_model(run, assumed, stack), recipe))
    except InputError as reason:
        raise RowSkipped(str(reason)) from None
    batch = run.global_batch_size
    job = Job(model=model, cluster=cluster, software=stack, global_batch_size=batch)
    plan = _cut_plan(job, run, case_plan(run, assumed, stack, recipe), recipe)
    notes = (*notes, *cluster_notes, *_assumed_of_model(run))
    case = Case(run=run, job=job, plan=plan, notes=notes)
    return replace(case, notes=(*notes, *_said_of_its_error(case)))


def _cut_plan(job: Job, run: MeasuredRun, plan: Plan, recipe: Recipe | None) -> Plan:
    """The plan with the recipe's stages where the row states none, and its actions' times."""
    if recipe is not None and run.stage_layers is None:
        cut = recipe.stage_layers(job.model.num_layers, plan.num_stages)
        plan = replace(plan, stage_layers=cut)
    legal = violation(plan, job.model, job.cluster) is None  # an illegal plan is told later
    return with_action_times(job, plan) if legal else plan


def _assumed_of_model(run: MeasuredRun) -> Iterator[str]:
    """What is taken from the catalog, and how experts lie, where the row does not say."""
    base = known_model(run.model)
    if base is not None and (run.n_experts or any(base.name in told for told in run.filled)):
        yield f"model '{shown(run.model)}': sizes that are not stated are those of {base.name}"
    if base is None and not run.n_experts and not is_named(run.model):
        kind = "Llama's" if has_gate(run.hidden_size, run.ffn_hidden_size) else "GPT's"
        yield f"model '{shown(run.model)}' is not known: by its sizes its layers are {kind}"
    if model_family(run.model).name == "bert":
        yield BERT_NOTE
    if run.offload_layers is None and offload_layers(run):
        yield f"activations of {offload_layers(run)} layers are on the host, as in the recipe"
    if again := repeated_modules(run):
        told = "as the row says" if run.recompute else "as in the recipe"
        yield f"backward repeats {', '.join(again)}, {told}"
    if run.n_experts and run.tp > 1 and run.etp is None:
        yield f"etp is not stated: experts are whole (etp=1) although tp={run.tp}"


def _said_of_its_error(case: Case) -> Iterator[str]:
    """Why a run's error says little: its format is guessed, or its time has one digit."""
    if not case.says_little:
        return
    why = "its source prints one digit"
    if case.format_assumed:
        assumed = f"precision is not stated: {case.plan.precision} is assumed on a device "
        why = assumed + "that computes in 8 bits too"
    yield f"{case.run.row_id}: {why}; its error takes part in no interval"


def _predicting(spec: TransformerSpec, recipe: Recipe | None) -> TransformerSpec:
    """The whole model with its recipe's layers for further tokens; a trimmed one as it is."""
    base = known_mixture(spec.name)
    if recipe is None or base is None or spec.num_layers != base.num_layers:
        return spec
    return with_options(spec, predicted_tokens=recipe.predicted_tokens)
