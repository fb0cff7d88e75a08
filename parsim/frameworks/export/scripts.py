"""A plan for any training program: torchrun on each node, one Slurm job, or a list of actions."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError
from parsim.frameworks.export.rules import check_rules, heading
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.schedule import schedule_of


def torchrun_script(scenario: Scenario, plan: Plan) -> str:
    """A shell script for every node; it takes the node's number and where the nodes meet.

    Raises:
        PlanError: the nodes differ.
    """
    nodes, ranks = _ranks(scenario.job.cluster)
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *heading(scenario, plan),
            "# on node i: NODE_RANK=i MEET=first-node:29500 ./this.sh train.py its arguments",
            "set -euo pipefail",
            "exec torchrun \\",
            f"    --nnodes={nodes} --nproc-per-node={ranks} \\",
            '    --node-rank="${NODE_RANK:-0}" \\',
            '    --rdzv-backend=c10d --rdzv-endpoint="${MEET:-localhost:29500}" \\',
            '    "$@"',
            "",
        ]
    )


def sbatch_script(scenario: Scenario, plan: Plan) -> str:
    """A Slurm job that starts torchrun on each of its nodes.

    Raises:
        PlanError: the nodes differ.
    """
    nodes, ranks = _ranks(scenario.job.cluster)
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            "#SBATCH --job-name=train",
            f"#SBATCH --nodes={nodes}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --gpus-per-node={ranks}",
            "#SBATCH --exclusive",
            *heading(scenario, plan),
            "# sbatch this.sh train.py its arguments; add --partition, --account, --time",
            "set -euo pipefail",
            'first="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
            "srun --kill-on-bad-exit=1 torchrun \\",
            f"    --nnodes={nodes} --nproc-per-node={ranks} \\",
            '    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$first:29500" \\',
            '    "$@"',
            "",
        ]
    )


def _ranks(cluster: Cluster) -> tuple[int, int]:
    """Hosts and ranks of each: what one launcher starts."""
    if cluster.groups:
        raise PlanError("a launch script needs nodes of one kind; start each group's by itself")
    system = cluster.system
    each = system.launched_together
    return cluster.num_nodes * system.devices_per_node // each, each


def schedule_csv(scenario: Scenario, plan: Plan) -> str:
    """One row of actions a pipeline rank.

    Raises:
        PlanError: the schedule has what PyTorch's lists have no word for.
    """
    schedule = schedule_of(plan)
    moved = f"schedule {schedule.name}; PyTorch has no actions that move activations between ranks"
    check_rules("csv", plan, [(schedule.limit is not None, moved)])
    return schedule.to_csv()
