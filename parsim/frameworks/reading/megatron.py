"""Arguments of Megatron-LM, in a launch script or alone, as a described job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parsim.cost.job import ADAMW, CLIP
from parsim.errors import InputError, shown
from parsim.frameworks.reading.arguments import Reader, arguments_of
from parsim.frameworks.reading.described_job import DescribedJob
from parsim.frameworks.reading.megatron_hybrid import PATTERNS
from parsim.frameworks.reading.megatron_model import model_of, program_of
from parsim.frameworks.reading.megatron_plan import plan_of
from parsim.frameworks.reading.megatron_software import software_of
from parsim.frameworks.reading.megatron_words import USUAL, WORDS
from parsim.frameworks.reading.shell_variables import behind_conditions, fallback_note, with_values
from parsim.frameworks.reading.unread import unread_notes
from parsim.units import whole_number

_REQUIRED = (
    *("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length"),
    "--micro-batch-size",
)


def megatron_job(text: str) -> DescribedJob:
    """The job of Megatron-LM's arguments.

    Raises:
        InputError: a size is missing or is no number.
    """
    known, defaults = with_values(text)
    reader = Reader(arguments_of(known))
    _check_required(reader)
    plan, software = plan_of(reader), software_of(reader)
    model = model_of(reader, program_of(known))
    devices, nodes = _launched(reader)
    batch, clip = reader.number("--global-batch-size", 0), reader.real("--clip-grad", CLIP)
    return DescribedJob(
        model=model,
        plan=plan,
        global_batch_size=batch,
        precision=_precision(reader),
        clip=None if clip == CLIP else clip,
        optimizer=_optimizer(reader),
        software=software,
        devices=devices,
        nodes=nodes,
        guessed="" if devices or nodes else _given(reader, "--nnodes"),
        notes=(
            *fallback_note(text, defaults, reader.read),
            *reader.notes,
            *_conditions(behind_conditions(known) & reader.read),
            *unread_notes(_said(reader) - reader.read),
        ),
        words=WORDS,
    )


def _check_required(reader: Reader) -> None:
    """Refuse arguments without sizes; a pattern of layers says how many there are."""
    named = any(flag in reader.given for flag in PATTERNS)
    for flag in _REQUIRED:
        if flag not in reader.given and not (named and "layers" in flag):
            raise InputError(f"these are no arguments of a Megatron-LM training: no {flag}")


def _said(reader: Reader) -> set[str]:
    """The flags that say something else than what is usual."""
    usual = {flag for flag, words in USUAL.items() if reader.first(flag) in words}
    return set(reader.given) - usual


def _conditions(flags: Iterable[str]) -> Iterator[str]:
    """A note of what a script gives in some cases alone."""
    if flags := sorted(flags):
        yield f"read as given, though a condition of the script decides: {', '.join(flags)}"


def _optimizer(reader: Reader) -> str:
    """What updates parameters; of a kind that parsim does not know Adam, and its flag is unread."""
    if reader.first("--optimizer") != "sgd":
        return ADAMW.name
    reader.has("--optimizer")
    return "sgd_momentum" if reader.real("--sgd-momentum", 0.9) else "sgd"


def _precision(reader: Reader) -> str:
    """The precision of products, in parsim's words."""
    if reader.has("--fp4-format"):
        return "mxfp4" if reader.word("--fp4-recipe", "nvfp4") == "mxfp4" else "nvfp4"
    if reader.has("--fp8-format"):
        return "mxfp8" if reader.word("--fp8-recipe", "delayed") == "mxfp8" else "fp8"
    return "fp16" if reader.has("--fp16") else "bf16" if reader.has("--bf16") else "fp32"


def _launched(reader: Reader) -> tuple[int | None, int | None]:
    """The devices that the launcher is told of, or the nodes alone where it says no devices."""
    each_flag = "--nproc-per-node" if reader.has("--nproc-per-node") else "--nproc_per_node"
    nodes = whole_number(reader.word("--nnodes", ""))
    each = whole_number(reader.word(each_flag, ""))
    if nodes and each:
        return nodes * each, None
    if nodes:
        reader.notes.append(f"{_given(reader, each_flag)}: all devices of a node are assumed")
    return None, nodes


def _given(reader: Reader, flag: str) -> str:
    """A flag that gives no number, or that it is not there."""
    word = shown(reader.word(flag, ""))
    return f"{flag} {word} is no number" if reader.has(flag) else f"no {flag}"
