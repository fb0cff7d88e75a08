"""From a measured run to what parsim predicts: model, cluster, software and plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import NARROW
from parsim.cost.software import Software, software, with_switches
from parsim.errors import InputError, shown
from parsim.model.transformer import TransformerSpec, build_transformer, with_options
from parsim.plan import Plan
from parsim.plan.rules.violation import violation
from parsim.sim.step.action_times import with_action_times
from parsim.validation.step.assumptions import Assumptions, assumptions_for, software_of_experts
from parsim.validation.step.case_cluster import case_cluster
from parsim.validation.step.case_plan import case_plan
from parsim.validation.step.known_models import known_mixture, known_model
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.model_family import BERT_NOTE, MIXTURE, model_family
from parsim.validation.step.recipes import Recipe, offload_layers, recipe_of, repeated_modules
from parsim.validation.tables import RowSkipped


def case_model(run: MeasuredRun, assumed: Assumptions, stack: Software) -> TransformerSpec:
    """Sizes and switches of the model; the stack says how its attention runs."""
    sizes = {
        "name": run.model,
        "num_layers": run.n_layers,
        "hidden_size": run.hidden_size,
        "num_attention_heads": run.n_heads,
        "num_key_value_heads": run.n_kv_heads,
        "ffn_hidden_size": run.ffn_hidden_size,
        "vocab_size": run.vocab_size,
        "seq_len": run.seq_len,
        "fused_attention": stack.fused_attention
        if run.flash_attention is None
        else run.flash_attention,
        "dropout": assumed.dropout if run.dropout is None else run.dropout,
        **(_experts(run) if run.n_experts else {}),
    }
    base = known_model(run.model)
    return _of_family(run, sizes) if base is None else _of_catalog(run, base, sizes)


def _experts(run: MeasuredRun) -> dict[str, Any]:
    return {
        "num_experts": run.n_experts,
        "experts_per_token": run.moe_topk,
        "expert_ffn_hidden_size": run.moe_ffn_hidden_size or run.ffn_hidden_size,
    }


def _of_family(run: MeasuredRun, sizes: dict[str, Any]) -> TransformerSpec:
    """A model that the catalog does not have; a mixture of experts is one of Mixtral's kind."""
    grouped = run.n_kv_heads != run.n_heads
    family = MIXTURE if run.n_experts else model_family(run.model, grouped_queries=grouped)
    return TransformerSpec(
        **{
            **family.flags,
            **sizes,
            "head_dim": run.hidden_size // run.n_heads,
            "positions": run.seq_len if family.positions else 0,
        }
    )


def _of_catalog(run: MeasuredRun, base: TransformerSpec, sizes: dict[str, Any]) -> TransformerSpec:
    """The catalog's model with the row's sizes, and its family's head where it has none.

    A mixture with fewer layers is one trimmed for a benchmark; of its plain first layers one is
    left (SimuMax: "1 dense layer + MoE layers").
    """
    even = base.head_dim * base.num_attention_heads == base.hidden_size
    changes = {
        **sizes,
        "padded_vocab_size": None,
        "head_dim": run.hidden_size // run.n_heads if even else base.head_dim,
        "positions": run.seq_len if base.positions else 0,
    }
    if base.head == "none":
        changes["head"] = model_family(run.model).flags["head"]
    if run.n_layers < base.num_layers:
        changes["dense_layers"] = min(base.dense_layers, 1)
    return with_options(base, **changes)


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


def build_case(run: MeasuredRun) -> Case:
    """Build model, system, software and plan of a measured run.

    Raises:
        RowSkipped: something about the run cannot be simulated yet.
    """
    assumed, name, notes = assumptions_for(run.stack)
    recipe = recipe_of(run) if run.n_experts else None
    stack = _software(software(_stack_name(run, name)), run, recipe)
    try:
        cluster, cluster_notes = case_cluster(run, load_catalog())
        model = build_transformer(_predicting(case_model(run, assumed, stack), recipe))
    except InputError as reason:
        raise RowSkipped(str(reason)) from None
    job = Job(
        model=model,
        cluster=cluster,
        software=stack,
        global_batch_size=run.global_batch_size,
    )
    plan = _cut_plan(job, run, case_plan(run, assumed, stack, recipe), recipe)
    case = Case(
        run=run,
        job=job,
        plan=plan,
        notes=(*notes, *cluster_notes, *_assumed_of_model(run)),
    )
    if not case.format_assumed:
        return case
    guess = f"{run.row_id}: precision is not stated: {plan.precision} is assumed on a device "
    aside = "that computes in 8 bits too; its error takes part in no interval"
    return replace(case, notes=(*case.notes, guess + aside))


def _stack_name(run: MeasuredRun, usual: str) -> str:
    """The stack that a run is priced with: the usual one, or that of its experts."""
    base = known_mixture(run.model)
    if not run.n_experts or (base and base.layer_pattern):
        return usual
    return software_of_experts(run.stack, run.release) or usual


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
    if model_family(run.model).name == "bert":
        yield BERT_NOTE
    if run.offload_layers is None and offload_layers(run):
        yield f"activations of {offload_layers(run)} layers are on the host, as in the recipe"
    if again := repeated_modules(run):
        yield f"backward repeats {', '.join(again)}, as in the recipe"
    if run.n_experts and run.tp > 1 and run.etp is None:
        yield f"etp is not stated: experts are whole (etp=1) although tp={run.tp}"


def _predicting(spec: TransformerSpec, recipe: Recipe | None) -> TransformerSpec:
    """The whole model with its recipe's layers for further tokens; a trimmed one as it is."""
    base = known_mixture(spec.name)
    if recipe is None or base is None or spec.num_layers != base.num_layers:
        return spec
    return with_options(spec, predicted_tokens=recipe.predicted_tokens)


def _software(stack: Software, run: MeasuredRun, recipe: Recipe | None) -> Software:
    """The stack as the row and a published recipe set it up."""
    if run.torch_compile is False and stack.compile:
        stack = with_switches(stack, {"compile": False})
    if run.overlap is not None:
        stack = replace(stack, tp_overlap="tp" in run.overlap)
    if run.token_drop:  # padded to a capacity: the host knows all sizes and waits for no counts
        stack = replace(stack, expert_launch=stack.launch_cost)
    if recipe is not None:
        stack = replace(
            stack,
            expert_overlap={"default": 1.0 if recipe.overlap else 0.0},
            expert_dispatcher=recipe.dispatcher,
            graphs=recipe.graphs,
            fused_experts=recipe.fused_mlp,
            quantized_logits=recipe.quantized_logits,
            quantized_attention=recipe.quantized_attention,
        )
    if run.cuda_graphs is not None:
        graphs = stack.graphs if run.cuda_graphs else ()
        stack = replace(stack, cuda_graphs=run.cuda_graphs, graphs=graphs)
    if run.quantized_attention is not None:
        stack = replace(stack, quantized_attention=run.quantized_attention)
    if run.blocking_launches:
        stack = with_switches(stack, {"blocking_launches": True})
    if run.bucket_parameters is not None:
        stack = replace(stack, ddp_bucket_parameters=float(run.bucket_parameters))
    return stack
