"""A run as a shell script: for torchrun by hand, or for Slurm. Text only; nothing is started.

The script starts the same ranks with the same arguments as `parsim run`:

    torchrun    the same script on every node     the caller says where they meet
    sbatch      one job; srun starts each node    the job's first node is where they meet

Both lock the folder of the results as `parsim run` does, and take the interpreter from `PYTHON`, in
which parsim and torch must be installed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Final

from parsim.cluster.hardware import System
from parsim.errors import InputError, did_you_mean, printable, shown
from parsim.launch.launch import meeting_of
from parsim.launch.nodes import Nodes
from parsim.launch.options import RunOptions
from parsim.launch.ranks import settings
from parsim.scenario import Scenario

_TORCHRUN: Final = Template("""\
#!/usr/bin/env bash
# $title
# Start it$where, in the folder that its paths are relative to.
set -euo pipefail
$settings
exec "$${PYTHON:-python3}" -m parsim.launch.lock $lock \\
    "$${PYTHON:-python3}" -m torch.distributed.run \\
$words
""")

_SBATCH: Final = Template("""\
#!/usr/bin/env bash
#SBATCH --job-name=parsim
#SBATCH --nodes=$nodes
#SBATCH --ntasks-per-node=1
$resources
# $title
# Start it with sbatch; add what your site asks for: --partition, --account, --time.
set -euo pipefail
$settings
srun --kill-on-bad-exit=1 --cpus-per-task=$ranks \\
    "$${PYTHON:-python3}" -m parsim.launch.lock $lock \\
    "$${PYTHON:-python3}" -m torch.distributed.run \\
$words
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a script starts.

    `words` are the arguments of the executor, `restarts` those of torchrun about starting again.
    `devices_per_host` are GPUs, or with `on_cpu` cores. `name` is what the nodes meet under.
    """

    label: str
    world_size: int
    nodes: Nodes
    devices_per_host: int
    on_cpu: bool
    out: Path
    words: Sequence[str]
    restarts: Sequence[str] = ()
    name: str = "parsim"
    timeout: float = 300.0

    @property
    def ranks(self) -> int:
        """Ranks on each node."""
        return self.nodes.share(self.world_size)

    @property
    def title(self) -> str:
        """The plan, and where its ranks stand, on one line: it is a comment of the script."""
        count = self.nodes.count
        where = "one node" if count == 1 else f"each of {count} nodes"
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"{printable(self.label)}: {ranks} on {where}"


def emit(form: str, scenario: Scenario, options: RunOptions) -> str:
    """The script of a run, for one of FORMS; without `nnodes` the system's size decides.

    Raises:
        InputError: an unknown form, or nodes that cannot hold the ranks.
    """
    if form not in FORMS:
        raise InputError(
            f"--emit={shown(form)} is unknown{did_you_mean(form, FORMS)}; "
            f"allowed: {', '.join(FORMS)}"
        )
    plan, system = scenario.fixed_plan(), scenario.job.system
    asked = options.nodes if options.nnodes is not None else None
    nodes = nodes_for(plan.world_size, system, asked, oversubscribe=options.oversubscribe)
    return FORMS[form](_script(scenario, replace(options, nnodes=nodes.count), nodes))


def _script(scenario: Scenario, options: RunOptions, nodes: Nodes) -> Script:
    """What a script of any form says of the run."""
    plan, system = scenario.fixed_plan(), scenario.job.system
    words = options.words(scenario.path or Path())
    return Script(
        label=plan.label(),
        world_size=plan.processes,
        nodes=nodes,
        devices_per_host=system.launched_together,
        on_cpu=options.device == "cpu" or system.on_cpu,
        out=options.out,
        words=words,
        restarts=options.restarts,
        name=meeting_of(words, options),
        timeout=options.timeout,
    )


def nodes_for(
    world_size: int, system: System, asked: Nodes | None, *, oversubscribe: bool = False
) -> Nodes:
    """The nodes that a script starts: those asked for, or the fewest whose devices suffice.

    A node is a machine here, as torchrun and Slurm have it: of an NVL72, a compute tray.

    Raises:
        InputError: the ranks cannot be shared out equally, or a node lacks devices for its share.
    """
    have = system.launched_together
    where = "host" if have < system.devices_per_node else "node"
    counts = (n for n in range(1, world_size + 1) if world_size % n == 0)
    fewest = next(n for n in counts if world_size // n <= have)
    if asked is None:
        return Nodes(count=fewest)
    if asked.share(world_size) > have and not oversubscribe:
        raise InputError(
            f"--nnodes={asked.count} puts {asked.share(world_size)} ranks on a node, but "
            f"{system.id} has {have} devices a {where}; use --nnodes {fewest} or more, or "
            "--oversubscribe"
        )
    return asked


def torchrun_script(script: Script) -> str:
    """The script to start by hand, on each of its nodes."""
    several = script.nodes.count > 1
    return _TORCHRUN.substitute(
        title=script.title,
        where=" on every node" if several else "",
        settings=_settings(script, _meeting(script) if several else ()),
        words=_torchrun_lines(script, script.name),
        lock=_lock(script, script.name),
    )


def sbatch_script(script: Script) -> str:
    """The script for Slurm's sbatch.

    Raises:
        InputError: an endpoint was given, but the job has its own.
    """
    if script.nodes.endpoint is not None:
        raise InputError(
            f"--rdzv-endpoint={shown(script.nodes.endpoint)} is unknown before Slurm has chosen "
            "the nodes; leave it out, the script meets on the first node of the job"
        )
    return _SBATCH.substitute(
        title=script.title,
        nodes=script.nodes.count,
        ranks=script.ranks,
        resources="\n".join(_resources(script)),
        settings=_settings(script, _head_node() if script.nodes.count > 1 else ()),
        words=_torchrun_lines(script, '"$SLURM_JOB_ID"'),
        lock=_lock(script, '"$SLURM_JOB_ID"'),
    )


FORMS: Final = {"torchrun": torchrun_script, "sbatch": sbatch_script}
"""Scripts by the name of what runs them."""


def _settings(script: Script, meeting: Iterable[str]) -> str:
    """What `parsim run` sets, and the folder of the results, without an earlier document.

    The user's own settings come first.
    """
    everywhere, lines = settings(script.nodes, linux=False), []
    for name, value in settings(script.nodes, linux=True).items():
        only = "" if name in everywhere else '[ "$(uname)" != Linux ] || '
        lines.append(f'{only}export {name}="${{{name}:-{value}}}"')
    folder = f"mkdir -p -- {shlex.quote(str(script.out))}"
    earlier = f"rm -f -- {shlex.quote(str(script.out / 'run.json'))}"
    return "\n".join([*lines, *meeting, folder, earlier])


def _meeting(script: Script) -> Iterable[str]:
    if script.nodes.endpoint is None:
        yield 'endpoint="${RDZV_ENDPOINT:?set it to HOST:PORT of one node, the same on all}"'
    else:
        yield f"endpoint={shlex.quote(script.nodes.endpoint)}"


def _head_node() -> Iterable[str]:
    """The first node of the job; a port that two jobs on one node hardly share."""
    yield """head_node="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)\""""
    yield 'endpoint="$head_node:$((20000 + SLURM_JOB_ID % 10000))"'


def _resources(script: Script) -> Iterable[str]:
    """At least one core a rank, or torchrun's one task would give all its ranks a single one."""
    yield f"#SBATCH --cpus-per-task={script.ranks}"
    if not script.on_cpu:
        yield f"#SBATCH --gpus-per-node={min(script.ranks, script.devices_per_host)}"


def _lock(script: Script, name: str) -> str:
    """Arguments of the lock: the folder, and what its nodes have in common if there are several."""
    return f"{shlex.quote(str(script.out))} {name if script.nodes.count > 1 else shlex.quote('')}"


def _torchrun_lines(script: Script, name: str) -> str:
    """Arguments of torchrun and the executor, ready for the shell, one a line."""
    words = [
        *script.nodes.torchrun_words(
            script.world_size, name=name, timeout=script.timeout, endpoint='"$endpoint"'
        ),
        *map(shlex.quote, script.restarts),
        "-m executor",
        *map(shlex.quote, script.words),
    ]
    return " \\\n".join(f"    {word}" for word in words)
