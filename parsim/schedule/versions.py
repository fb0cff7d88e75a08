"""Which weights a micro-batch meets in a pipeline that never flushes, and how many a stage keeps.

A stage updates its weights while other micro-batches are between its forward and its backward.
Micro-batches M and stages s count from 0, p stages; version 0 are the first weights.

    rule                      version that M uses at s           kept at s      updates late
    pipedream                 max(0, M - (p - s) + 1)            p - s          p - 1 - s
    pipedream_vertical_sync   max(0, M - p + 1), at all stages   p              p - 1
    pipedream_2bw             max(0, M // m - 1), batches of m   2              1 (in batches)

F and B of a micro-batch use the same version; each backward is an update, but with 2BW only the
last of a batch. Where stages have r_s replicas (pipedream alone), the r_s backwards that these take
at once are reduced to one update, and M uses max(0, floor(M / r_s) - w_s) of w_s + 1 versions, w_s
being the forwards that a replica begins with (`schedule/replicas.py`). Replicas that do not wait
for their sum update behind their next backward: M uses max(0, floor(M / r_s) - w_s - 1), and of as
many versions, w_s + 1. Sources: PipeDream, arXiv 1806.03377 (whose servers sum behind the replicas)
and SOSP 2019 (whose DistributedDataParallel they wait for); PipeDream-2BW, arXiv 2006.09503.
"""

from __future__ import annotations

from dataclasses import dataclass

from parsim.errors import ScheduleError, alternatives, shown
from parsim.schedule.replicas import StageReplicas

RULES = {
    "pipedream": "1F1B without flush; a micro-batch's backward uses the weights of its forward.",
    "pipedream_vertical_sync": "PipeDream, and all stages use the version that the first one used.",
    "pipedream_2bw": "PipeDream with two versions: updates once a batch, by the gradient before.",
}
"""Rules by name, with what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """A rule for `pp` stages; `batch` micro-batches make one update (1 but for pipedream_2bw).

    `counts` are replicas of each stage (none: one each), `depths` the forwards that each replica
    begins with, where they are more than it must; `late` the rounds by which its updates come later
    than behind the backwards that they are from (none: 0).
    """

    rule: str
    pp: int
    batch: int = 1
    counts: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    late: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no pipeline can follow.

        Raises:
            ScheduleError: an unknown rule, fewer than 2 stages, or a batch that needs more than
                two versions.
        """
        if self.rule not in RULES:
            known = alternatives(self.rule, RULES)
            raise ScheduleError(f"unknown rule of weight versions '{shown(self.rule)}'{known}")
        if self.pp < 2:
            raise ScheduleError(f"pp={self.pp}: a pipeline has at least 2 ranks")
        least = self.pp - 1 if self.rule == "pipedream_2bw" else 1
        if self.batch < least or (least == 1 and self.rule != "pipedream_2bw" and self.batch > 1):
            allowed = f"{least} and more" if self.rule == "pipedream_2bw" else "1"
            raise ScheduleError(
                f"{self.rule} with updates every {self.batch} micro-batches on {self.pp} stages; "
                f"allowed: {allowed}"
            )
        if self.rule != "pipedream" and max(self.replicas.counts) > 1:
            raise ScheduleError(
                f"{self.rule} with replicas of stages {list(self.counts)}: versions of one number "
                f"would differ between them; use pipedream, or one replica each"
            )

    @property
    def replicas(self) -> StageReplicas:
        """The replicas of each stage."""
        return StageReplicas(self.counts or (1,) * self.pp)

    @property
    def warmups(self) -> tuple[int, ...]:
        """Forwards that each replica of a stage begins with, (p,)."""
        return self.depths or self.replicas.warmups

    def used(self, stage: int, microbatch: int) -> int:
        """The version that a micro-batch meets at a stage, in its forward and its backward."""
        if self.rule == "pipedream_2bw":
            return max(0, microbatch // self.batch - 1)
        if self.rule == "pipedream_vertical_sync":
            return max(0, microbatch - self.pp + 1)
        newest = microbatch // self.replicas.counts[stage] - self.lateness(stage)
        return max(0, newest - self.warmups[stage])

    def lateness(self, stage: int) -> int:
        """Rounds between the backwards that an update is from and those that it stands behind."""
        return self.late[stage] if self.late else 0

    def table(self, microbatches: int) -> list[list[int]]:
        """The versions that so many micro-batches meet, by stage."""
        return [[self.used(stage, m) for m in range(microbatches)] for stage in range(self.pp)]

    def made(self, stage: int, microbatch: int) -> int | None:
        """The version that a stage makes behind a micro-batch's backward; None where none."""
        done, rest = divmod(microbatch // self.replicas.counts[stage] + 1, self.batch)
        return None if rest else done

    def kept(self, stage: int) -> int:
        """Versions that a stage holds at once, the newest among them."""
        if self.rule == "pipedream_2bw":
            return 2
        return self.pp if self.rule == "pipedream_vertical_sync" else self.warmups[stage] + 1

    def delay(self, stage: int) -> int:
        """Updates between the weights of a gradient and the weights it is applied to."""
        return 1 if self.rule == "pipedream_2bw" else self.kept(stage) - 1 + self.lateness(stage)
