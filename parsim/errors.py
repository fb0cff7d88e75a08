"""Every error that parsim raises on purpose, its exit code, and names that are nearly right.

ParsimError                     1   (never raised itself)
├── InputError                  2   the user's input is wrong
│   ├── ScenarioError           2   a file: says file:line:column field message
│   ├── UnitError               2   a quantity without, or with the wrong, unit
│   ├── CatalogError            2   an unknown device, system, model or software name
│   ├── ModelError              2   a model that cannot be built as described
│   ├── PlanError               2   a plan that is not legal for this model and cluster
│   ├── ScheduleError           2   a schedule that is incomplete or out of order
│   │   └── DeadlockError       2   ... or that can never finish; carries the waiting cycle
│   └── TableError              2   a table of measured runs that cannot be read
├── NoFeasiblePlan              3   nothing fits; carries the nearest miss
├── ToleranceExceeded           4   a comparison fell outside its tolerance
└── RunError                    5   ranks failed while running
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ParsimError(Exception):
    """Base of all deliberate errors; `exit_code` is what the command line ends with."""

    exit_code = 1


class InputError(ParsimError):
    """The user's input is wrong; the message names value, allowed values and fix."""

    exit_code = 2


class ScenarioError(InputError):
    """A user file is wrong; the message starts with `file:line:column field`."""


class UnitError(InputError):
    """A quantity has no unit, or a unit of another dimension."""


class CatalogError(InputError):
    """A name is not in the catalog."""


class ModelError(InputError):
    """A model cannot be built as described."""


class PlanError(InputError):
    """A plan is not legal for this model and cluster."""


class ScheduleError(InputError):
    """A schedule is incomplete, duplicated, misplaced or out of order."""


class DeadlockError(ScheduleError):
    """A schedule that never finishes.

    `cycle` holds one line per waiting rank, each waiting for the next, the last for the first.
    """

    def __init__(self, message: str, cycle: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.cycle = cycle


class TableError(InputError):
    """A table of measured runs cannot be read at all."""


class NoFeasiblePlan(ParsimError):
    """No plan fits the devices; the message holds the nearest miss and what would make it fit."""

    exit_code = 3


class ToleranceExceeded(ParsimError):
    """A comparison fell outside its tolerance."""

    exit_code = 4


class RunError(ParsimError):
    """Ranks failed; the message names the first, what it said, and where the log is."""

    exit_code = 5


LONGEST_VALUE = 80
"""Characters of a user's value that a message shows."""


def shown(value: object) -> str:
    """A value as messages show it: on one line, without control characters, cut at 80."""
    try:
        text = str(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of thousands of digits"
    if len(text) > LONGEST_VALUE:
        text = f"{text[: LONGEST_VALUE - 3]}..."
    return printable(text)


def printable(text: str) -> str:
    """Text that a terminal cannot take for commands: control characters are written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the closest known word, or an empty text.

    Names that begin with the word, or have it between hyphens, come first, all of them: A100 is no
    misspelt a10, and h100 may be dgx-h100. Then the longest name with which the word begins.
    """
    if len(word) > LONGEST_VALUE:  # no name is as long, and comparing takes its square
        return ""
    names = list(known)
    if ALIASES.get(word.casefold()) in names:
        return f" (did you mean '{ALIASES[word.casefold()]}'?)"
    longer = begun(word, names) or beginnings(word, names)[:1]
    if longer:
        return f" (did you mean {' or '.join(map(repr, longer))}?)"
    spelt = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(word.casefold(), list(spelt), n=1, cutoff=0.6)
    return f" (did you mean '{spelt[close[0]]}'?)" if close else ""


ALIASES = {
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "single": "fp32",
    "float8": "fp8",
    **{
        f"{long}{ending}": short
        for short, long in {
            "tp": "tensor",
            "pp": "pipeline",
            "dp": "data",
            "cp": "context",
            "ep": "expert",
        }.items()
        for ending in ("", "_parallel", "_parallel_size", "_model_parallel_size", "_parallelism")
    },
    "micro_batch_size": "microbatch_size",
    "virtual_stages": "v",
    "batch": "global_batch_size",
    "batch_size": "global_batch_size",
    "gradient_accumulation_steps": "num_microbatches",
    **dict.fromkeys(("seq_length", "sequence_length", "max_seq_len"), "seq_len"),
    **dict.fromkeys(("gpus", "gpus_per_node", "num_gpus"), "devices_per_node"),
    **dict.fromkeys(("gpu", "gpu_type"), "device"),
    **dict.fromkeys(("activation_checkpointing", "gradient_checkpointing"), "recompute"),
    **dict.fromkeys(("zero", "fsdp"), "zero_stage"),
    **dict.fromkeys(("lora", "lora_r"), "lora_rank"),
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "c_attn"), "linear_qkv"),
    **dict.fromkeys(("o_proj", "out_proj"), "linear_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "linear_fc1"),
    "down_proj": "linear_fc2",
    "pytorch": "generic",
}
"""What PyTorch and others call a name that is spelt quite differently here."""

BEGUN = 3
"""Letters of a word from which on it may be the beginning of a name."""


def begun(word: str, known: Iterable[str]) -> list[str]:
    """The names that begin with a word or have it between hyphens, in any case.

    None of a short word, or of too many names.
    """
    start = word.casefold()
    longer = [
        name
        for name in dict.fromkeys(known)
        if name.casefold().startswith(start) or start in name.casefold().split("-")
    ]
    return longer if len(word) >= BEGUN and len(longer) <= NEAREST else []


def beginnings(word: str, known: Iterable[str]) -> list[str]:
    """The names with which a word begins, in any case, the longest first; none of short names."""
    whole = word.casefold()
    starts = [n for n in known if len(n) >= BEGUN and whole.startswith(n.casefold())]
    return sorted(starts, key=len, reverse=True)


MOST_LISTED = 13
"""Names that a message lists in full; of more it lists the nearest."""

NEAREST = 5


def matching(word: str, known: Iterable[str]) -> str | None:
    """The known name that is the word, or else the only one that differs from it by case alone."""
    names = list(known)
    if word in names:
        return word
    alike = [name for name in names if name.casefold() == word.casefold()]
    return alike[0] if len(alike) == 1 else None


def alternatives(
    word: str, known: Iterable[str], *, label: str = "allowed", listing: str = ""
) -> str:
    """What a message says behind an unknown word: a guess, and the names that there are.

    Args:
        word: what was written.
        known: the names.
        label: what they are, in front of a full list.
        listing: the command that prints all of them, for those that are too many for a message.
    """
    names = list(dict.fromkeys(known))
    hint = did_you_mean(word, names)
    if len(names) <= MOST_LISTED:
        return f"{hint}; {label}: {', '.join(names)}"
    more = f" (all of them: {listing})" if listing else ""
    if len(begun(word, names)) > 1:  # the nearest begin with it, and a guess would list them twice
        hint = ""
    return f"{hint}; nearest of {len(names)}: {', '.join(nearest(word, names))}{more}"


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The few names most like a word, the likest first: those that it is a part of, then others."""
    short = word[:LONGEST_VALUE].casefold()
    matcher = difflib.SequenceMatcher(b=short)

    def likeness(name: str) -> tuple[bool, float]:
        matcher.set_seq1(name.casefold())
        return short in name.casefold(), matcher.ratio()

    return sorted(known, key=likeness, reverse=True)[:NEAREST]
