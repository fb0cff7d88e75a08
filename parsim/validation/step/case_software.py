"""The software of a measured run: its stack, set up as the row and a published recipe say."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.software import Software, software, with_switches
from parsim.validation.step.assumptions import software_of_experts
from parsim.validation.step.known_models import known_mixture
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.recipes import Recipe


def case_software(run: MeasuredRun, usual: str, recipe: Recipe | None) -> Software:
    """The stack, which is the `usual` one but for mixtures, with the switches of the run."""
    stack = software(_stack_name(run, usual))
    if run.torch_compile is False and stack.compile:
        stack = with_switches(stack, {"compile": False})
    stack = _without(stack, run.stack_lacks)
    if run.overlap is not None:
        stack = replace(stack, tp_overlap="tp" in run.overlap)
    if run.token_drop:  # padded to a capacity: the host knows all sizes and waits for no counts
        stack = replace(stack, expert_launch=stack.padded_launch)
    if recipe is not None:
        stack = _with_recipe(stack, recipe)
    return _as_the_row_says(stack, run)


def _stack_name(run: MeasuredRun, usual: str) -> str:
    """The stack that a run is priced with: the usual one, or that of its experts."""
    base = known_mixture(run.model)
    if not run.n_experts or (base and base.layer_pattern):
        return usual
    return software_of_experts(run.stack, run.release) or usual


def _without(stack: Software, lacks: tuple[str, ...]) -> Software:
    """The stack without what it had not when a run was made."""
    if "accumulation" in lacks:
        stack = replace(stack, accumulates=False)
    stages = tuple(stage for stage in stack.zero_stages if f"zero{stage}" not in lacks)
    return replace(stack, zero_stages=stages)


def _with_recipe(stack: Software, recipe: Recipe) -> Software:
    """The stack with a recipe's dispatcher, graphs and kernels of experts."""
    return replace(
        stack,
        expert_overlap={"default": 1.0 if recipe.overlap else 0.0},
        expert_dispatcher=recipe.dispatcher,
        graphs=recipe.graphs,
        fused_experts=recipe.fused_mlp,
        quantized_logits=recipe.quantized_logits,
        quantized_attention=recipe.quantized_attention,
    )


def _as_the_row_says(stack: Software, run: MeasuredRun) -> Software:
    """The stack with what the row states, which goes before its recipe."""
    if run.cuda_graphs is not None:
        graphs = stack.graphs if run.cuda_graphs else ()
        stack = replace(stack, cuda_graphs=run.cuda_graphs, graphs=graphs)
    if run.graph_scopes:
        stack = replace(stack, graphs=run.graph_scopes)
    if run.expert_overlap is not None:
        stack = replace(stack, expert_overlap={"default": float(run.expert_overlap)})
    if run.expert_dispatcher is not None:
        stack = replace(stack, expert_dispatcher=run.expert_dispatcher)
    if run.fused_experts is not None:
        stack = replace(stack, fused_experts=run.fused_experts)
    if run.quantized_attention is not None:
        stack = replace(stack, quantized_attention=run.quantized_attention)
    if run.fp8_scales is not None:
        stack = replace(stack, fp8_scales=run.fp8_scales)
    if run.blocking_launches:
        stack = with_switches(stack, {"blocking_launches": True})
    if run.bucket_parameters is not None:
        stack = replace(stack, ddp_bucket_parameters=float(run.bucket_parameters))
    return stack
