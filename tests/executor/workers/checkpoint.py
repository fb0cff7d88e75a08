"""Worker: training that goes on from a checkpoint, against training that was never interrupted.

Arguments: folder for the results, "all" plans or those "often" tried, and the folder of an earlier
launch, whose checkpoints are gone on from under this one's plans. On 2 ranks it also lets saves and
loads go wrong.
"""

from __future__ import annotations

import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.checkpoint.checkpoints import Checkpoints
from executor.checkpoint.folder import whole
from executor.checkpoint.record import check_sum, read_record, what_is_trained
from executor.devices.mesh import process_group
from executor.faults.reports import PeerError
from executor.model.factors import local_tensor
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from executor.training.samples import Corpus, batches
from executor.training.trainer import Trainer
from parsim.errors import InputError
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from tests.executor.launch import die_with_parent, results

SPEC = replace(
    model_spec("gpt2"),
    num_layers=4,
    hidden_size=64,
    num_attention_heads=4,
    num_key_value_heads=1,  # two tensor ranks copy it
    head_dim=16,
    ffn_hidden_size=128,
    vocab_size=256,
    seq_len=32,
    positions=32,
    dropout=True,
)
MIXTURE = replace(SPEC, num_experts=4, experts_per_token=2, expert_ffn_hidden_size=64)
PLANS = {
    2: {
        "ep": Plan(precision="fp32", dp_replicate=2, ep=2),
        "ep zero1": Plan(precision="fp32", dp_shard=2, zero_stage=1, ep=2),
        "ddp": Plan(precision="fp32", dp_replicate=2, num_microbatches=2),
        "zero1": Plan(precision="fp32", dp_shard=2, zero_stage=1),
        "zero1 bf16": Plan(precision="bf16", dp_shard=2, zero_stage=1),
        "zero2": Plan(precision="fp32", dp_shard=2, zero_stage=2, num_microbatches=2),
        "zero3 bf16": Plan(precision="bf16", dp_shard=2, zero_stage=3),
        "tp": Plan(precision="fp32", tp=2),
        "tp sp bf16": Plan(precision="bf16", tp=2, sequence_parallel=True),
        "pp interleaved": Plan(
            precision="fp32", pp=2, num_microbatches=4, schedule="interleaved_1f1b", v=2
        ),
    },
    4: {
        "hsdp": Plan(precision="fp32", dp_replicate=2, dp_shard=2, zero_stage=3),
        "zero1 in 2 copies": Plan(precision="bf16", dp_replicate=2, dp_shard=2, zero_stage=1),
        "pp zero1": Plan(precision="bf16", pp=2, dp_shard=2, zero_stage=1, num_microbatches=4),
        "pp zero3": Plan(precision="fp32", pp=2, dp_shard=2, zero_stage=3, num_microbatches=2),
        "ep zero1 bf16": Plan(precision="bf16", dp_shard=4, zero_stage=1, ep=2),
        "ep zero3 cp": Plan(precision="fp32", dp_shard=2, cp=2, zero_stage=3, ep=2),
        "ep etp tp": Plan(
            precision="fp32", dp_replicate=2, tp=2, ep=2, etp=2, sequence_parallel=True
        ),
        "zero3 tp": Plan(precision="fp32", dp_shard=2, zero_stage=3, tp=2),
    },
}
OFTEN = {
    2: ("ep zero1", "ddp", "zero1 bf16", "zero2", "zero3 bf16", "tp sp bf16", "pp interleaved"),
    4: ("zero1 in 2 copies", "pp zero3", "ep zero3 cp", "ep etp tp", "zero3 tp"),
}
"""Plans that hold each way to share out and to cut a model once."""
DRY = replace(SPEC, dropout=False)
ROUTED = replace(MIXTURE, dropout=False)
CHAINS: dict[int, list[list[Plan]]] = {
    2: [
        [
            Plan(precision="fp32", tp=2, num_microbatches=8),
            Plan(precision="fp32", dp_shard=2, zero_stage=3, num_microbatches=4),
            Plan(precision="fp32", pp=2, num_microbatches=8),
        ],
        [
            Plan(precision="fp32", dp_replicate=2, ep=2, num_microbatches=4),
            Plan(precision="fp32", tp=2, sequence_parallel=True, num_microbatches=8),
        ],
    ],
    4: [
        [
            Plan(precision="fp32", dp_shard=2, pp=2, zero_stage=1, num_microbatches=4),
            Plan(precision="fp32", dp_shard=2, tp=2, zero_stage=3, num_microbatches=4),
            Plan(precision="fp32", dp_shard=4, zero_stage=1, num_microbatches=2),
            Plan(precision="fp32", cp=2, dp_shard=2, zero_stage=2, num_microbatches=4),
        ],
        [
            Plan(precision="fp32", dp_shard=4, zero_stage=1, ep=2, num_microbatches=2),
            Plan(precision="fp32", dp_shard=4, zero_stage=3, ep=2, num_microbatches=2),
            Plan(
                precision="fp32",
                dp_replicate=2,
                tp=2,
                ep=2,
                etp=2,
                sequence_parallel=True,
                num_microbatches=4,
            ),
        ],
    ],
}
"""Plans of one global batch, each of which goes on from where the one before it was."""

CPU = torch.device("cpu")
CORPUS = Corpus.load()


def build(plan: Plan, spec: TransformerSpec | None = None) -> Trainer:
    spec = spec or (MIXTURE if plan.ep > 1 else SPEC)
    spec = replace(spec, dropout=spec.dropout and plan.cp == 1)  # blocks of keys have none
    return build_trainer(spec, plan, device=CPU, seed=0)


def checkpoints(plan: Plan, root: Path, *, resume: bool) -> Checkpoints:
    trained = what_is_trained(plan, {"name": SPEC.name}, 0, b"text")
    return Checkpoints(root=root, every=2, resume=resume, attempt=0, trained=trained, last_step=9)


def train(trainer: Trainer, losses: list[float], upto: int) -> list[float]:
    """Take steps behind those whose losses are given."""
    plan = trainer.plan
    source = batches(
        CORPUS,
        seed=0,
        global_batch_size=plan.global_batch_size,
        seq_len=SPEC.seq_len,
        first_step=len(losses),
    )
    for batch in source:
        if len(losses) == upto:
            return losses
        result = trainer.step(*rank_part(SPEC, plan, dist.get_rank(), batch))
        total = torch.tensor([sum(result), float(len(result))], dtype=torch.float64)
        dist.all_reduce(total)
        losses.append(float(total[0] / total[1]))
    return losses


def values(trainer: Trainer) -> list[Tensor]:
    parameters = [p for replica in trainer.replicas for p in replica.stage.parameters()]
    return [local_tensor(parameter).clone() for parameter in parameters]


def case(plan: Plan, root: Path) -> dict[str, Any]:
    """Save after 2 of 4 steps; the same losses and weights must come out of a fresh trainer."""
    through = build(plan)
    losses = train(through, [], 2)
    checkpoints(plan, root, resume=False).save(through, losses)
    train(through, losses, 4)
    again = build(plan)
    before = list(checkpoints(plan, root, resume=True).restore(again))
    count = len(before)
    after = train(again, before, 4)
    pairs = zip(values(through), values(again), strict=True)
    return {
        "before": count,
        "losses": [losses, after],
        "weights": max(float((a.float() - b.float()).abs().max()) for a, b in pairs if a.numel()),
    }


def chain(spec: TransformerSpec, plans: list[Plan], root: Path) -> list[list[list[float]]]:
    """Losses of each plan's 4 steps, and of those that the next one takes from its second step on.

    What the last plan saved stays, for other ranks to go on from.
    """
    collected = []
    for number, plan in enumerate(plans):
        folder = root / str(number)
        through = build(plan, spec)
        losses = train(through, [], 2)
        checkpoints(plan, folder, resume=False).save(through, losses)
        train(through, losses, 4)
        following = plans[(number + 1) % len(plans)]
        collected.append([losses, gone_on(spec, following, folder)])
    return collected


def gone_on(spec: TransformerSpec, plan: Plan, folder: Path) -> list[float]:
    trainer, told = build(plan, spec), list[str]()
    kept = replace(checkpoints(plan, folder, resume=True), tell=told.append)
    before = list(kept.restore(trainer))
    on_another = dist.get_rank() == 0 and read_record(whole(folder)[-1])["label"] != plan.label()
    assert [plan.label() in note for note in told] == [True] * on_another
    return train(trainer, before, 4)


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let this process write no file longer than that."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def warnings_of(act: Any) -> list[str]:
    try:
        act()
    except (InputError, PeerError) as error:
        return [type(error).__name__, str(error)]
    return []


def failing_save(plan: Plan, root: Path) -> dict[str, Any]:
    """Rank 1 cannot write its part of the second checkpoint."""
    trainer, kept = build(plan), checkpoints(plan, root, resume=False)
    losses = train(trainer, [], 1)
    kept.save(trainer, losses)
    train(trainer, losses, 2)
    if dist.get_rank() == 1:
        with disk_of(20_000):
            result = warnings_of(lambda: kept.save(trainer, losses))
    else:
        result = warnings_of(lambda: kept.save(trainer, losses))
    dist.barrier()
    return {"said": result, "left": sorted(path.name for path in root.iterdir())}


def spoil(folder: Path) -> None:
    """Make one byte in the middle of rank 1's file another one."""
    if dist.get_rank() == 0:
        path = folder / "rank-00001.safetensors"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    dist.barrier()


def stepped_over(plan: Plan, root: Path) -> dict[str, Any]:
    """The newest of two checkpoints is damaged where only its checksum tells."""
    trainer, told = build(plan), list[str]()
    kept = replace(checkpoints(plan, root, resume=True), tell=told.append)
    losses = list(kept.restore(trainer))
    kept.save(trainer, train(trainer, losses, 2))
    spoil(whole(root)[-1])
    return {"before": len(kept.restore(build(plan))), "told": told}


def damaged(plan: Plan, root: Path) -> dict[str, Any]:
    """No checkpoint is whole: rank 0 says so, and the others wait for it in vain."""
    spoil(whole(root)[0])
    if dist.get_rank() != 0:
        return {}
    kept = checkpoints(plan, root, resume=True)
    damages = {folder: str(check_sum_of(folder)) for folder in whole(root)}
    return {"said": warnings_of(lambda: kept.start(damages))}


def check_sum_of(folder: Path) -> str | None:
    """What is wrong with rank 1's file."""
    name = "rank-00001.safetensors"
    return check_sum(folder, name, read_record(folder)["files"][name])


def pruned(plan: Plan, root: Path) -> list[str]:
    """What is left of four checkpoints, and of a killed run's unfinished one."""
    trainer, kept = build(plan), checkpoints(plan, root, resume=False)
    if dist.get_rank() == 0:
        (root / ".step-00000009.part0").mkdir(parents=True)
    kept.restore(trainer)
    losses: list[float] = []
    for step in range(1, 9):
        kept.after_step(trainer, train(trainer, losses, step))
    return sorted(path.name for path in root.iterdir())


def main(folder: str, which: str, earlier: str = "") -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 60.0):
        root = Path(folder)
        plans, chains = PLANS[dist.get_world_size()], CHAINS[dist.get_world_size()]
        chosen = plans if which == "all" else OFTEN[dist.get_world_size()]
        result: dict[str, Any] = {name: case(plans[name], root / name) for name in chosen}
        result["chains"] = {}
        for spec, links in zip((DRY, ROUTED), chains, strict=True):
            name = f"chain{spec.num_experts}"
            result["chains"][spec.num_experts] = chain(spec, links, root / name)
            if earlier:
                after = gone_on(spec, links[0], Path(earlier) / name / "0")
                result["chains"][f"from {spec.num_experts}"] = after
        if dist.get_world_size() == 2:
            result["failing save"] = failing_save(plans["zero1"], root / "full")
            result["stepped over"] = stepped_over(plans["zero1"], root / "full")
            if dist.get_rank() == 0:
                shutil.rmtree(whole(root / "full")[-1])
            dist.barrier()
            result["damaged"] = damaged(plans["zero1"], root / "full")
            result["pruned"] = pruned(plans["ddp"], root / "pruned")
        results(folder, dist.get_rank(), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
