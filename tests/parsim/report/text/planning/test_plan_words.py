"""Plans in words."""

from __future__ import annotations

import pytest

from parsim.plan import Plan, Recompute
from parsim.plan.stages import Stage
from parsim.plan.strategies import LocalSGD
from parsim.report.text.planning.plan_words import plan_words


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(), "one replica of the model; 1 micro-batch of 1 sample"),
        (
            Plan(dp_shard=32, pp=2, v=2, schedule="zb_v", zero_stage=2, num_microbatches=16),
            "32 replicas of the model that share out optimizer states and gradients; layers on 2 "
            "devices one after another with 2 chunks each (zb_v); 16 micro-batches of 1 sample",
        ),
        (
            Plan(dp_replicate=2, dp_shard=4, tp=8, cp=2, ep=4, zero_stage=3, microbatch_size=2),
            "8 replicas of the model that share out optimizer states, gradients and parameters "
            "(FSDP), each among 4; matrix products split over 8 devices; sequences split over 2; "
            "experts shared out to 4; 1 micro-batch of 2 samples",
        ),
        (
            Plan(tp=2, sequence_parallel=True, recompute=Recompute.FULL, num_microbatches=4),
            "one replica of the model; matrix products and the tokens between them split over 2 "
            "devices; 4 micro-batches of 1 sample, all layers computed again",
        ),
        (
            Plan(dp_replicate=4, strategy=LocalSGD(every=8)),
            "4 replicas of the model by local_sgd; 1 micro-batch of 1 sample",
        ),
        (
            Plan(pp=2, stages=(Stage(layers=3, replicas=2), Stage(layers=2)), schedule="auto"),
            "layers on 2 stages of 2 and 1 replicas one after another (an order found for it); 1 "
            "micro-batch of 1 sample",
        ),
        (
            Plan(
                pp=2,
                stages=(Stage(layers=3, replicas=3, late_update=True), Stage(layers=2)),
                schedule="pipedream",
            ),
            "layers on 2 stages of 3 and 1 replicas one after another (pipedream); stages keep 2 "
            "to 1 versions of their weights, gradients are 2 to 0 updates late; 1 micro-batch of "
            "1 sample",
        ),
        (
            Plan(pp=3, stages=(Stage(layers=3, tp=4), Stage(layers=2), Stage(layers=2))),
            "layers on 3 stages of 4, 1 and 1 devices one after another (1f1b); 1 "
            "micro-batch of 1 sample",
        ),
        (
            Plan(pp=4, schedule="pipedream_2bw", num_microbatches=8),
            "one replica of the model; layers on 4 devices one after another (pipedream_2bw); "
            "stages keep 2 versions of their weights, gradients are 1 update late; 8 "
            "micro-batches of 1 sample",
        ),
    ],
)
def test_words_say_what_the_label_does(plan: Plan, words: str) -> None:
    assert plan_words(plan) == words
