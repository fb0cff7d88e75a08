"""Runs a Schedule, the very one that was simulated, on the devices of a pipeline group.

The list of actions is lowered and proven here, and then given to torch's interpreter of action
lists (`executor.pipeline.runtime`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from executor.model.loss import LossFn
from executor.parallel.gradients.buckets import GradientBuckets
from executor.pipeline.partner import Partner
from executor.pipeline.runnable import DpKind, as_run, check_runnable
from executor.pipeline.runtime import Runtime, build_runtime, keep_forwards
from executor.pipeline.tensor_spec import TensorSpec
from executor.torch_internals.distributed import replicate_module
from executor.torch_internals.pipelining import REDUCE_GRAD
from executor.torch_internals.self_test import require_compatible
from parsim.errors import InputError, PlanError, ScheduleError
from parsim.schedule import Schedule


class PipelineRunner:
    """Runs one schedule on this rank's stages, step after step.

    `stages` maps global stage numbers to modules, and must hold exactly the stages that
    the schedule puts on this rank. `edges` has one entry more than a copy of the model has stages:
    what goes into its stage s is `edges[s]`, what comes out `edges[s + 1]`. A module returns one
    tensor, and its results go to the next stage only. `loss_fn` takes one micro-batch's output and
    target and returns its mean loss. Where the schedule has several copies of the model, each
    adds up the gradients of its own micro-batches.

    `buckets` take over the gradients of the stages, all of them or none, and send them at
    REDUCE_GRAD, without hooks of autograd, so that this is right with split backwards too; call
    `GradientBuckets.finish` after the step, which waits for them. Modules may instead be wrapped by
    DistributedDataParallel, `fully_shard` or `replicate`; then `zero_stage` says how (see
    `check_runnable`).

    Gradients are means over micro-batches and are added to what `.grad` or the buckets hold.

    Raises:
        PlanError: the stages, edges or data parallelism do not fit the schedule.
        ScheduleError: the schedule is incomplete, out of order, or deadlocks.
        InputError: this torch lacks what is needed.
    """

    def __init__(
        self,
        schedule: Schedule,
        stages: Mapping[int, nn.Module],
        *,
        edges: Sequence[TensorSpec],
        loss_fn: LossFn,
        group: dist.ProcessGroup,
        device: torch.device,
        buckets: Mapping[int, GradientBuckets] | None = None,
        zero_stage: int = 0,
    ) -> None:
        require_compatible()
        buckets = buckets or {}
        # of all ranks alike: one that holds no parameters must not refuse what the others run
        reduced = any(bucketed.exchanged for bucketed in buckets.values())
        dp_kind = _dp_kind(stages, reduced)
        backend = dist.get_backend(group)
        check_runnable(schedule, zero_stage=zero_stage, dp_kind=dp_kind, backend=backend)
        _check_stages(schedule, stages, edges, group)
        self.schedule = as_run(schedule, dp_kind)
        self.rank = dist.get_rank(group)
        self._edges = tuple(edges)
        self._first = next(filter(schedule.is_first, stages), None)
        self._last = next(filter(schedule.is_last, stages), None)
        self._stages, self._loss_fn = dict(stages), loss_fn
        self._group, self._device = group, device
        self._runtime = build_runtime(
            self.schedule, stages, self._edges, loss_fn, group, device, buckets, zero_stage
        )
        self.partner: Partner | None = None
        if reduced:
            self._runtime.register_custom_function(
                REDUCE_GRAD, lambda action, _: buckets[action.stage_index].send()
            )

    @property
    def kept_for_partner(self) -> int:
        """The most bytes of another rank's activations that lay here at once."""
        return 0 if self.partner is None else self.partner.most_kept

    def share_with(self, partner: Partner) -> None:
        """Keep some activations on a partner, or some of a partner's, as the schedule says."""
        self.partner = partner
        self._runtime.share_with(partner)

    def step(
        self, tokens: torch.Tensor | None = None, targets: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Forward and backward of one whole batch; losses by micro-batch on the last stage's rank.

        `tokens` is used where a first stage is, `targets` where a last one is; both hold all
        micro-batches, one behind the other. Other ranks return an empty list.

        Raises:
            InputError: what this rank needs is missing or of the wrong batch size.
            PlanError: a stage returns something else than its edge promises.
        """
        with nullcontext() if self.partner is None else self.partner.serving():
            return self._taken(self._runtime, self._runtime.step, tokens, targets)

    def evaluation(self) -> Step:
        """The forwards alone of the same schedule, as a function of a batch that gives its losses.

        It has buffers of its own for messages, which go when the function does.
        """
        runtime = build_runtime(
            self.schedule,
            self._stages,
            self._edges,
            self._loss_fn,
            self._group,
            self._device,
            {},
            0,
        )
        keep_forwards(runtime)
        return partial(self._taken, runtime, runtime.eval)

    def _taken(
        self,
        runtime: Runtime,
        run: Callable[..., object],
        tokens: torch.Tensor | None,
        targets: torch.Tensor | None,
    ) -> list[torch.Tensor]:
        """Let a runtime take a whole batch."""
        args: tuple[torch.Tensor, ...] = ()
        if self._first is not None:
            whole = _whole_batch("tokens", tokens, self.schedule.num_microbatches)
            _check_batch(whole, self._edges[0], self.schedule.num_microbatches)
            args = (self._share(whole, self._first),)
        target = None
        if self._last is not None:
            whole = _whole_batch("targets", targets, self.schedule.num_microbatches)
            target = self._share(whole, self._last)
        losses: list[torch.Tensor] = []
        runtime.by_microbatch.clear()
        run(*args, target=target, losses=losses, return_outputs=False)
        return losses

    def _share(self, batch: torch.Tensor, stage: int) -> torch.Tensor:
        """The micro-batches that go through a stage."""
        ours, rows = self.schedule.microbatches_of(stage), len(batch)
        each = rows // self.schedule.num_microbatches
        return batch[ours.start * each : ours.stop * each]


Step = Callable[[torch.Tensor | None, torch.Tensor | None], list[torch.Tensor]]
"""Takes a whole batch and its targets; losses by micro-batch on the last stage's rank."""


def _dp_kind(stages: Mapping[int, nn.Module], reduced: bool) -> DpKind:
    """How the modules of this rank share their gradients."""
    replicated = replicate_module()
    kinds: set[DpKind] = set()
    for module in stages.values():
        if isinstance(module, DistributedDataParallel):
            kinds.add("ddp")
        elif replicated is not None and isinstance(module, replicated):
            kinds.add("replicate")
        else:
            kinds.add("fully_shard" if isinstance(module, FSDPModule) else "none")
    if reduced:
        if kinds != {"none"}:
            raise PlanError(
                f"stages are wrapped as {', '.join(sorted(kinds))} and buckets are given too; "
                "gradients would be averaged twice; allowed: one of the two"
            )
        return "reduce_grad"
    if len(kinds) != 1:
        raise PlanError(
            f"the stages of one rank are wrapped as {', '.join(sorted(kinds)) or 'nothing'}; "
            "allowed: all of them alike"
        )
    return kinds.pop()


def _check_stages(
    schedule: Schedule,
    stages: Mapping[int, nn.Module],
    edges: Sequence[TensorSpec],
    group: dist.ProcessGroup,
) -> None:
    """Refuse modules and shapes that do not belong to the schedule."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if size != schedule.pp:
        raise ScheduleError(
            f"{schedule.name} is for {schedule.pp} pipeline ranks, but the group has {size}"
        )
    if set(stages) != set(schedule.stages_on(rank)):
        raise PlanError(
            f"rank {rank} was given stages {sorted(stages)}, but {schedule.name} puts "
            f"{list(schedule.stages_on(rank))} there"
        )
    if len(edges) != schedule.depth + 1:
        raise PlanError(
            f"{len(edges)} edges for {schedule.depth} stages; expected "
            f"{schedule.depth + 1}: the input of each stage, and the last one's output"
        )


def _whole_batch(name: str, given: torch.Tensor | None, count: int) -> torch.Tensor:
    if given is None:
        raise InputError(f"this rank holds a stage that needs {name}, but none were given")
    if given.shape[0] % count:
        raise InputError(
            f"{name} have {given.shape[0]} rows, which is not a multiple of the {count} "
            "microbatches; give all of them at once, one behind the other"
        )
    return given


def _check_batch(tokens: torch.Tensor, edge: TensorSpec, count: int) -> None:
    expected = (count * edge.shape[0], *edge.shape[1:])
    if (tuple(tokens.shape), tokens.dtype) != (expected, edge.dtype):
        raise InputError(
            f"tokens are {tuple(tokens.shape)} {tokens.dtype}; expected {expected} {edge.dtype}: "
            f"{count} microbatches of edge 0"
        )
