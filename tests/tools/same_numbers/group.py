"""Variants of one scenario for `same_numbers`, and short ways to write their settings.

A `Group` is one scenario with settings of its own and a dictionary of variants. Each variant is
simulated with its timeline and on shared links, or as `forms` says; a plan that does not fit, or
that a later stage refuses, is recorded all the same, with its message and exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from tests.tools.same_numbers.case import Case, Words, scenario, settings

PLAIN, LINKS, JITTER, EVENTS, TEXT, TRACE, SEARCH = (
    "plain",
    "links",
    "jitter",
    "events",
    "text",
    "trace",
    "search",
)
FORMS: Mapping[str, tuple[str, str]] = {
    PLAIN: ("simulate", "--json --timeline {out}/timeline.json"),
    LINKS: ("simulate", "--json --contention"),
    JITTER: ("simulate", "--json --jitter-steps 20"),
    EVENTS: ("simulate", "--json --events"),
    TEXT: ("simulate", ""),
    TRACE: ("timeline", "-o {out}/trace.json"),
    SEARCH: ("search", "--json --top 20"),
}
"""What is asked of a variant: a command and its options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Variants of one scenario: settings by name, beside those that all of them share.

    `quick` names the variants of the short run.
    """

    name: str
    of: str
    base: str = ""
    variants: Mapping[str, str]
    forms: Words = (PLAIN, LINKS)
    quick: Words = ()
    seconds: float = 0.3

    def cases(self) -> Iterable[Case]:
        """One case for each variant."""
        for name, more in self.variants.items():
            options = settings(f"{self.base} {more}")
            commands = {form: self.command(form, options) for form in self.forms}
            yield Case(
                id=f"{self.name}/{name}",
                commands=commands,
                quick=name in self.quick,
                seconds=self.seconds,
            )

    def command(self, form: str, options: Words) -> Words:
        """One command of a variant."""
        verb, words = FORMS[form]
        path = self.of if self.of.startswith("{") else scenario(self.of)
        return (verb, path, *words.split(), *options)


L8, L70, FP8 = "llama3-8b-dgx-h100", "llama3-70b-dgx-h100", "llama3-8b-fp8-dgx-h100"
QWEN, MIXED, SHARED = "qwen3-30b-a3b-dgx-h100", "llama3-70b-h100-a100", "llama2-7b-shared-fabric"
SIXTEEN = "cluster.nodes=2 training.precision=bf16 training.global_batch_size=64 software=nemo"
"""Llama 3 8B on two nodes; the plan block is replaced as a whole by each variant."""


def plan(**values: object) -> str:
    """A whole plan block as one setting."""
    return f"plan={{{', '.join(f'{key}: {value}' for key, value in values.items())}}}"


def named(**axes: Mapping[str, object]) -> dict[str, str]:
    """Every combination of named values as plan fields: `plan.KEY=VALUE ...` by joined names."""
    names = ("-".join(chosen) for chosen in product(*axes.values()))
    values = product(*(each.values() for each in axes.values()))
    texts = (
        " ".join(f"plan.{key}={value}" for key, value in zip(axes, row, strict=True))
        for row in values
    )
    return dict(zip(names, texts, strict=True))


def each(key: str, *values: object) -> dict[str, str]:
    """One variant for each value of a key."""
    return {str(value): f"{key}={value}" for value in values}


HYBRID = plan(tp=2, pp=4, dp_replicate=2, microbatch_size=1)
"""Sixteen devices in all three ways."""
