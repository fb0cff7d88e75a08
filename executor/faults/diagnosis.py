"""Which of the ranks failed first, from what they left behind (see `executor.faults.reports`).

`python -m executor.faults.diagnosis OUT` reads the places and reports of the last attempt, with
torchrun's exit codes in `OUT/log.txt`, and names the rank that began it:

    rank 1 killed -> rank 0 "Connection closed by peer" -> torchrun ends rank 0
    rank 1 hangs  -> rank 0 "Timed out waiting 8000ms"  -> parsim or torchrun kills rank 1

Ranks whose connection broke or timed out are victims; whoever is silent beside them is not.
Needs no torch.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from executor.faults.reports import Report, attempt_folder, tell, writing
from parsim.errors import InputError

OUT_OF_MEMORY = (
    "what helps: a smaller plan.microbatch_size, plan.recompute=full, or a higher plan.zero_stage"
)

_ENDED_BY_TORCHRUN = -signal.SIGTERM
_ABORTED = -signal.SIGABRT  # NCCL's watchdog ends a rank so when another rank is gone

# "failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: ...", once an attempt, in their order;
# the local rank is the rank where all are on one machine
_FIRST_OF_ATTEMPT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) ")
# "rank : 1 (local_rank: 1)" and "exitcode : -9 (pid: 7)", in the end; the root cause comes last
_AT_THE_END = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What failed ranks left: reports, last places by rank, exit codes by rank as torchrun saw.

    `root` is the rank that torchrun saw failing first.
    """

    ranks: int
    timeout: float
    reports: Sequence[Report] = ()
    places: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    exits: Mapping[int, int] = field(default_factory=dict)
    root: int | None = None

    @classmethod
    def read(cls, out: Path, ranks: int, timeout: float, *, attempt: int | None = None) -> Evidence:
        """Read the folder of a run: one attempt that others followed, or by default the deciding.

        That is the last one, or an earlier one whose failure no restart helps against.
        """
        log = ""
        with suppress(OSError):
            log = (out / "log.txt").read_text(encoding="utf-8", errors="replace")
        if attempt is None:
            exits = [(int(rank), int(code)) for rank, code in _AT_THE_END.findall(log)]
        else:
            first = _FIRST_OF_ATTEMPT.findall(log)[attempt : attempt + 1]
            exits = [(int(rank), int(code)) for code, rank in first]
        number = _deciding(out) if attempt is None else attempt
        folder, reports = attempt_folder(out, number), _reports(out, number)
        return cls(
            ranks=ranks,
            timeout=timeout,
            reports=sorted(reports, key=lambda report: report.time),
            places={rank: _place(folder / f"rank{rank}.step") for rank in range(ranks)},
            exits=dict(exits),
            root=exits[-1][0] if exits else None,
        )


def _deciding(out: Path) -> int:
    """The number of the last attempt, or of one that failed over the user's input."""
    folders = (out / "errors").glob("attempt*")
    last = max((int(f.name[7:]) for f in folders if f.name[7:].isdigit()), default=0)
    wrong = (n for n in range(last) if any(r.kind == "input" for r in _reports(out, n)))
    return next(wrong, last)


def _reports(out: Path, number: int) -> list[Report]:
    paths = attempt_folder(out, number).glob("rank*.json")
    return [Report(**json.loads(path.read_text())) for path in paths]


def _place(path: Path) -> tuple[int, str]:
    try:
        step, action = path.read_text().split(maxsplit=1)
        return int(step), action.strip()
    except (OSError, ValueError):
        return -1, "start"


def explain(evidence: Evidence) -> tuple[str, int]:
    """One line that names the first failing rank, its step and its action; and the exit code."""
    code = evidence.exits.get(evidence.root, 0) if evidence.root is not None else 0
    silent = set(range(evidence.ranks)) - {report.rank for report in evidence.reports}
    if evidence.root in silent and code < 0 and code not in (_ENDED_BY_TORCHRUN, _ABORTED):
        return _killed(evidence, evidence.root, code), 1
    for report in evidence.reports:
        if not report.victim:
            return _described(report), 2 if report.kind == "input" else 1
    if evidence.reports and silent:
        return _hung(evidence, silent), 1
    if evidence.reports:
        return _described(evidence.reports[0]), 1
    unstoppable = [r for r, code in evidence.exits.items() if code == -signal.SIGKILL]
    if code == _ABORTED and unstoppable:  # they did not follow torchrun's signal to end
        return _hung(evidence, unstoppable), 1
    if evidence.root is not None and code < 0:
        return _killed(evidence, evidence.root, code), 1
    if evidence.root is not None:
        return f"rank {evidence.root} ended with exit code {code}{_at(evidence, evidence.root)}", 1
    return "the ranks ended, and none said why", 1


def _described(report: Report) -> str:
    where = f"rank {report.rank} failed{_where(report.step, report.action)}"
    if report.kind == "out of memory":
        return f"{where}: out of memory ({report.message}); {OUT_OF_MEMORY}"
    return f"{where}: {report.message}"


def _killed(evidence: Evidence, rank: int | None, code: int) -> str:
    name = signal.Signals(-code).name
    hint = " (short of memory, the system does that)" if code == -signal.SIGKILL else ""
    return f"rank {rank} was killed by {name}{_at(evidence, rank)}{hint}"


def _hung(evidence: Evidence, silent: Collection[int]) -> str:
    """The silent ranks that are the furthest behind."""
    behind = min(evidence.places.get(rank, (-1, ""))[0] for rank in silent)
    late = [r for r in sorted(silent) if evidence.places.get(r, (-1, ""))[0] == behind]
    who = f"rank {late[0]}" if len(late) == 1 else f"ranks {', '.join(map(str, late))}"
    which = "" if len(late) == 1 else "; which of them was the first cannot be told"
    kinds = {report.kind for report in evidence.reports}
    if kinds and kinds <= {"connection", "peer"}:
        return f"{who} ended without a word{_at(evidence, late[0])}{which}"
    gave = f"{who} gave no answer for --timeout={evidence.timeout:g} s"
    return f"{gave}{_at(evidence, late[0])}{which}"


def _at(evidence: Evidence, rank: int | None) -> str:
    return _where(*evidence.places.get(-1 if rank is None else rank, (-1, "start")))


def _where(step: int, action: str) -> str:
    when = f"at step {step}" if step >= 0 else "before the first step"
    return f" {when}, action {action}"


def tell_restart(out: Path, ranks: int, timeout: float, *, attempt: int, step: int) -> None:
    """Say what ended the attempt before this one, and at which step training goes on.

    On this rank of the new attempt.
    """
    evidence = Evidence.read(out, ranks, timeout, attempt=attempt - 1)
    where = f"goes on from step {step}" if step else "begins again at step 0"
    tell(out, "restart", f"{explain(evidence)[0]}; training {where} (restart {attempt})")


def main() -> int:
    """Print `{message, exit_code}` for a run whose ranks failed, and add it to the log."""
    parser = ArgumentParser(prog="python -m executor.faults.diagnosis", description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=0.0)
    options = parser.parse_args()
    message, code = explain(Evidence.read(options.out, options.ranks, options.timeout))
    try:
        with writing(options.out / "log.txt") as path, path.open("a", encoding="utf-8") as log:
            log.write(f"{message}\n")
    except InputError as full:  # then the ranks could not leave a report either
        message, code = str(full), full.exit_code
    sys.stdout.write(json.dumps({"message": message, "exit_code": code}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
