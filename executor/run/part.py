"""What one rank trains on: its parts of the global batches of a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from executor.measure.gradients import gather_gradients
from executor.measure.steps import Batch, known, mean_over_ranks
from executor.measure.tolerance import judge
from executor.model.module import Values
from executor.parallel.context import rank_part
from executor.training.text import Corpus, batches
from executor.training.trainer import build_trainer
from executor.weights.published import Published
from parsim.launch.options import RunOptions
from parsim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank trains: texts, of which `held_out` is evaluated with, and first weights.

    The text and the `values` are None where they are not asked for.
    """

    scenario: Scenario
    options: RunOptions
    device: torch.device
    corpus: Corpus = field(init=False)
    held_out: Corpus | None = field(init=False)
    values: Values | None = field(init=False)

    def __post_init__(self) -> None:
        train, held_out = corpora(self.scenario, self.options)
        object.__setattr__(self, "corpus", train)
        object.__setattr__(self, "held_out", held_out)
        published = self.options.init_from
        values = Published(published, self.scenario.spec) if published else None
        object.__setattr__(self, "values", values)

    def batches(self, *, first_step: int = 0, corpus: Corpus | None = None) -> Iterator[Batch]:
        """This rank's rows and places of the global batches of a text, on its device."""
        spec, plan = self.scenario.spec, self.scenario.fixed_plan()
        for batch in self.whole_batches(first_step=first_step, corpus=corpus):
            tokens, targets = rank_part(spec, plan, dist.get_rank(), batch)
            yield tokens.to(self.device), targets.to(self.device)

    def whole_batches(
        self, *, first_step: int = 0, corpus: Corpus | None = None
    ) -> Iterator[Batch]:
        """The global batches of a text, by default of that to train on."""
        return batches(
            corpus or self.corpus,
            seed=self.options.seed,
            global_batch_size=self.scenario.fixed_plan().global_batch_size,
            seq_len=self.scenario.spec.seq_len,
            masked=not self.scenario.spec.causal,
            first_step=first_step,
        )

    def verify(self) -> dict[str, Any] | None:
        """Loss and gradients of the first batch against one process with the same weights.

        Without dropout, whose masks depend on the placement. On rank 0; None elsewhere.
        """
        spec, plan = replace(self.scenario.spec, dropout=False), self.scenario.fixed_plan()
        seed, device = self.options.seed, self.device
        trainer = build_trainer(spec, plan, device=device, seed=seed, values=self.values)
        loss = mean_over_ranks(trainer.gradients(*next(self.batches())), device)
        gradients = gather_gradients(trainer.replicas, trainer.mesh, plan)
        if dist.get_rank() != 0:
            return None
        tokens, targets = next(self.whole_batches())
        on_device = (tokens.to(device), targets.to(device))
        verdict = judge(spec, plan, on_device, seed, loss, gradients, self.values)
        numbers = {
            name: known(value) if isinstance(value, float) else value
            for name, value in asdict(verdict).items()
        }
        return {**numbers, "within": verdict.within}


def corpora(scenario: Scenario, options: RunOptions) -> tuple[Corpus, Corpus | None]:
    """The text to train on and, where there are evaluations, that to evaluate with.

    Raises:
        InputError: the text cannot feed the model.
    """
    corpus = Corpus.load(options.data, tokenizer=options.tokenizer)
    if not options.eval_every:
        corpus.check(scenario.spec)
        return corpus, None
    train, held_out = corpus.halves()
    for text in (train, held_out):
        text.check(scenario.spec)
    return train, held_out
