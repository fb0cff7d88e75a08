"""The options of `parsim run`, each declared once.

RunOptions --signature--> parsim run      (parsim/cli/run.py)
--words------> python -m executor, and the script of --emit
--read_words-> the executor's ranks (executor/run/command.py)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from parsim.errors import InputError, did_you_mean, shown
from parsim.launch.nodes import Nodes

DECAYS = ("constant", "cosine")

LONGEST = 1e7
"""Seconds that ranks may be waited for at most, 115 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """How an option is shown on a command line, and who reads it.

    `least` is its smallest value. Options `for_ranks` are handed to the executor: where they differ
    from the default, or `always`.
    """

    help: str
    metavar: str | None = None
    least: int | None = None
    for_ranks: bool = True
    always: bool = False


class Declared(NamedTuple):
    """One option of `RunOptions`: its name there, its type without None, its default."""

    name: str
    type: type
    optional: bool
    default: Any
    flag: Flag

    @property
    def word(self) -> str:
        """The option as it is typed."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `parsim run` was asked for, beside the scenario, in the order of its help.

    Raises:
        InputError: an endpoint without a number of nodes, or no node at all; an unknown decay, or a
            learning rate or timeout that is none.
    """

    overrides: Sequence[str] = ()
    out: Annotated[Path, Flag(help="folder for results", always=True)] = Path("build/run")
    steps: Annotated[int, Flag(help="measured steps", least=1, always=True)] = 10
    warmup: Annotated[int, Flag(help="steps that are not measured", least=0, always=True)] = 3
    data: Annotated[Path | None, Flag(help="text file or folder to train on")] = None
    tokenizer: Annotated[
        Path | None, Flag(help="tokenizer.json for the text; default: its bytes")
    ] = None
    device: Annotated[
        str | None, Flag(help="cpu or cuda; or a file of `parsim calibrate` to predict with")
    ] = None
    nnodes: Annotated[
        int | None, Flag(metavar="N", help="run on N nodes; start the same on each")
    ] = None
    rdzv_endpoint: Annotated[
        str | None, Flag(metavar="HOST:PORT", help="where the nodes meet", for_ranks=False)
    ] = None
    emit: Annotated[
        str | None,
        Flag(
            metavar="torchrun|sbatch", help="print a script that runs it, and stop", for_ranks=False
        ),
    ] = None
    seed: Annotated[int, Flag(help="seed of weights and batches", always=True)] = 0
    clip: Annotated[
        float | None,
        Flag(help="largest norm of gradients, 0: any; default: training.clip", for_ranks=False),
    ] = None
    optimizer: Annotated[
        str | None,
        Flag(metavar="adamw|sgd|sgd_momentum", help="default: training.optimizer", for_ranks=False),
    ] = None
    learning_rate: Annotated[float, Flag(help="learning rate, at its highest")] = 6e-4
    lr_warmup: Annotated[
        int, Flag(metavar="STEPS", help="steps in which the learning rate rises", least=0)
    ] = 0
    lr_decay: Annotated[
        str, Flag(metavar="constant|cosine", help="learning rate behind its warm-up")
    ] = "constant"
    eval_every: Annotated[
        int, Flag(metavar="STEPS", help="loss of text that is not trained on; 0: never", least=0)
    ] = 0
    timeout: Annotated[float, Flag(help="seconds before a hung rank ends the run", always=True)] = (
        300.0
    )
    verify: Annotated[bool, Flag(help="compare gradients with one process")] = False
    deterministic: Annotated[
        bool, Flag(help="only kernels that give the same bits every time; some are slower")
    ] = False
    compile_backend: Annotated[
        str, Flag(metavar="NAME", help="what software.compile makes layers with; aot_eager: traced")
    ] = "inductor"
    oversubscribe: Annotated[bool, Flag(help="more ranks than devices share them")] = False
    checkpoint_every: Annotated[
        int, Flag(metavar="STEPS", help="save the training; 0: never", least=0)
    ] = 0
    checkpoints: Annotated[
        Path | None, Flag(metavar="DIR", help="where; default: OUT/checkpoints")
    ] = None
    init_from: Annotated[
        Path | None,
        Flag(metavar="DIR", help="first weights: a folder of Hugging Face's, safetensors"),
    ] = None
    export: Annotated[
        Path | None, Flag(metavar="DIR", help="write the trained weights there, in that format")
    ] = None
    resume: Annotated[bool, Flag(help="go on from the newest checkpoint")] = False
    max_restarts: Annotated[
        int,
        Flag(
            metavar="N", help="times that ranks start again after a fault", least=0, for_ranks=False
        ),
    ] = 0

    def __post_init__(self) -> None:
        Nodes.asked(self.nnodes, self.rdzv_endpoint)
        if self.lr_decay not in DECAYS:
            raise InputError(
                f"--lr-decay={shown(self.lr_decay)} is unknown"
                f"{did_you_mean(self.lr_decay, DECAYS)}; allowed: {', '.join(DECAYS)}"
            )
        if not 0.0 < self.learning_rate < math.inf:
            raise InputError(f"--learning-rate={self.learning_rate:g} must be above 0 and finite")
        if not 1.0 <= self.timeout <= LONGEST:
            raise InputError(
                f"--timeout={self.timeout:g} is no time for ranks to answer in; allowed: 1 to "
                f"{LONGEST:,.0f} seconds"
            )

    @property
    def of_scenario(self) -> list[str]:
        """The overrides of the scenario that options stand for: what costs time or memory."""
        given = {"training.clip": self.clip, "training.optimizer": self.optimizer}
        return [f"{key}={value}" for key, value in given.items() if value is not None]

    @property
    def nodes(self) -> Nodes:
        """The nodes of the run."""
        return Nodes.asked(self.nnodes, self.rdzv_endpoint)

    @property
    def last_step(self) -> int:
        """Steps that are taken, the warm-up included."""
        return self.warmup + self.steps

    @property
    def restarts(self) -> list[str]:
        """Arguments of torchrun about starting the ranks again."""
        return [f"--max-restarts={self.max_restarts}"] if self.max_restarts else []

    def words(self, scenario: Path) -> list[str]:
        """Arguments of `python -m executor`."""
        shared = [option for option in declared() if option.flag.for_ranks]
        always = [option for option in shared if option.flag.always]
        given = [option for option in shared if not option.flag.always]
        return [
            str(scenario),
            *(word for option in always for word in self._word(option)),
            *(f"--set={pair}" for pair in self.overrides),
            *(word for option in given if self._differs(option) for word in self._word(option)),
        ]

    def _differs(self, option: Declared) -> bool:
        """Whether an option says something else than its default; one node is the default too."""
        value = getattr(self, option.name)
        return bool(self.nodes.count > 1 if option.name == "nnodes" else value != option.default)

    def _word(self, option: Declared) -> list[str]:
        value = getattr(self, option.name)
        return [option.word if option.type is bool else f"{option.word}={value}"]


def declared() -> Iterator[Declared]:
    """The options in the order of their help, without `overrides`, which many commands have."""
    hints = get_type_hints(RunOptions, include_extras=True)
    for field in fields(RunOptions):
        hint = hints[field.name]
        flags = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Flag)]
        if flags:
            kinds = get_args(hint.__origin__) or (hint.__origin__,)
            yield Declared(
                name=field.name,
                type=kinds[0],
                optional=type(None) in kinds,
                default=field.default,
                flag=flags[0],
            )


def read_words(words: Sequence[str] | None = None) -> tuple[Path, RunOptions]:
    """The scenario and the options that `python -m executor` was started with."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m executor", description="One rank of `parsim run`, or the check before it."
    )
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    for option in declared():
        if not option.flag.for_ranks:
            continue
        if option.type is bool:
            parser.add_argument(option.word, action="store_true", help=option.flag.help)
        else:
            parser.add_argument(
                option.word,
                type=option.type,
                default=option.default,
                metavar=option.flag.metavar,
                help=option.flag.help,
            )
    values = vars(parser.parse_args(words))
    return values.pop("scenario"), RunOptions(**values)
