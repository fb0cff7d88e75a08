"""What one rank trains on: its parts of the global batches of a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from executor.measure.gradients import gather_gradients
from executor.measure.steps import mean_over_ranks
from executor.measure.tolerance import judge
from executor.model.first_values import Values, none_zero, seeded
from executor.model.graph.modules import without_dropout
from executor.model.loss import Batch
from executor.model.stage import hides_words, reads_text, text_length
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from executor.training.samples import Corpus, Images, batches
from executor.weights.published import Published
from parsim.errors import InputError
from parsim.launch.options import RunOptions
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.scenario import Scenario

Feed = Corpus | Images
"""What a model is trained on."""

FRESH = 10**9
"""A step that no training reaches: images from there on are none that were trained on."""


@dataclass(frozen=True, slots=True)
class RankPart:
    """What one rank trains: a feed, another to evaluate with, and first weights.

    The `held_out` one and the `values` are None where they are not asked for.
    """

    scenario: Scenario
    options: RunOptions
    device: torch.device
    feed: Feed
    held_out: Feed | None
    values: Values | None

    @classmethod
    def of(cls, scenario: Scenario, options: RunOptions, device: torch.device) -> RankPart:
        """The part of a run's options: its text or images, and published weights if it has some.

        Raises:
            InputError: the text cannot feed the model.
        """
        feed, held_out = feeds(scenario, options)
        values = Published(options.init_from, scenario.spec) if options.init_from else None
        return cls(scenario, options, device, feed, held_out, values)

    @property
    def backend(self) -> str | None:
        """What torch.compile makes layers with; None where the scenario does not compile."""
        return self.options.compile_backend if self.scenario.job.software.compile else None

    def batches(self, *, first_step: int = 0) -> Iterator[Batch]:
        """This rank's rows and places of the global batches to train on, on its device."""
        return map(self._mine, self._whole(self.feed, first_step))

    def evaluation(self, rank: int | None = None) -> Iterator[Batch]:
        """Batches to evaluate with, of another rank too; nothing where that is not asked for."""
        if self.held_out is not None:
            first = FRESH if isinstance(self.held_out, Images) else 0
            yield from (self._mine(whole, rank) for whole in self._whole(self.held_out, first))

    def of_rank(self, rank: int, step: int) -> Batch:
        """The part of any rank of one step's global batch, on this rank's device."""
        return self._mine(next(self._whole(self.feed, step)), rank)

    def whole(self, step: int) -> Batch:
        """The whole global batch of a step, on this rank's device."""
        tokens, targets = next(self._whole(self.feed, step))
        return tokens.to(self.device), targets.to(self.device)

    def _mine(self, batch: Batch, rank: int | None = None) -> Batch:
        plan, rank = self.scenario.fixed_plan(), dist.get_rank() if rank is None else rank
        tokens, targets = rank_part(self.scenario.model, plan, rank, batch)
        return tokens.to(self.device), targets.to(self.device)

    def _whole(self, feed: Feed, first_step: int = 0) -> Iterator[Batch]:
        """Global batches, one behind the other."""
        seed, size = self.options.seed, self.scenario.fixed_plan().global_batch_size
        if isinstance(feed, Images):
            return feed.batches(seed=seed, global_batch_size=size, first_step=first_step)
        return batches(
            feed,
            seed=seed,
            global_batch_size=size,
            seq_len=text_length(self.scenario.model),
            masked=hides_words(self.scenario.model),
            first_step=first_step,
        )

    @property
    def still(self) -> Description:
        """The model without dropout, whose masks depend on the placement."""
        spec = self.scenario.model
        return without_dropout(spec) if isinstance(spec, Graph) else replace(spec, dropout=False)

    @property
    def values_to_verify(self) -> Values:
        """First weights that gradients are verified with: none of an adapter's factors is zero."""
        return none_zero(self.values or seeded(self.options.seed, spec=self.scenario.model))

    def verify(self) -> dict[str, Any] | None:
        """Loss and gradients of the first batch against one process with the same weights.

        Without dropout. On rank 0; None elsewhere.
        """
        spec, plan, values = self.still, self.scenario.fixed_plan(), self.values_to_verify
        seed, device = self.options.seed, self.device
        trainer = build_trainer(
            spec, plan, device=device, seed=seed, values=values, backend=self.backend
        )
        loss = mean_over_ranks(trainer.gradients(*next(self.batches())), device)
        gradients = gather_gradients(trainer.replicas, trainer.mesh, plan)
        if dist.get_rank() != 0:
            return None
        on_device = self.whole(0)
        return judge(spec, plan, on_device, seed, loss, gradients, values).to_json()


def feeds(scenario: Scenario, options: RunOptions) -> tuple[Feed, Feed | None]:
    """The text that a model reads, or images that it sees; another to evaluate with, if asked.

    Raises:
        InputError: the text cannot feed the model, or a text is given to one that takes images.
    """
    if isinstance(scenario.model, Graph) and not reads_text(scenario.model):
        if options.data is not None or options.tokenizer is not None:
            raise InputError(
                f"{scenario.model.name} takes images, which are made here; leave --data and "
                f"--tokenizer out"
            )
        images = Images.of(scenario.model)
        return images, images if options.eval_every else None
    corpus = Corpus.load(options.data, tokenizer=options.tokenizer)
    if not options.eval_every:
        corpus.check(scenario.model)
        return corpus, None
    train, held_out = corpus.halves()
    for text in (train, held_out):
        text.check(scenario.model)
    return train, held_out
