"""What of a launch file was not read: all that may change a step by name, the rest by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parsim.errors import shown

_BEGINNINGS = (
    *("--adam-", "--adlr-", "--async-", "--auto-detect-ckpt", "--ckpt-", "--config-logger"),
    *("--consumed-", "--data-args", "--data-cache", "--data-parallel-random", "--data-path"),
    *("--dist-ckpt", "--distributed-timeout", "--embedding-init", "--end-weight", "--eval-"),
    *("--exit-", "--flight-recorder", "--init-method", "--log-", "--lr-", "--master", "--min-lr"),
    *("--min-loss-scale", "--mock-", "--muon-", "--no-load-", "--no-save-", "--non-persistent"),
    *("--node-rank", "--node_rank", "--null-tokenizer", "--one-logger", "--override-opt"),
    *("--profile", "--rdzv", "--save-", "--sft-", "--start-weight", "--straggler", "--tensorboard"),
    *("--test-data", "--tiktoken", "--timing-", "--tokenizer", "--use-checkpoint-opt"),
    *("--valid-data", "--wandb", "--wd-", "--weight-decay", "--yarn-"),
)
_NAMES = {
    *("--apply-query-key-layer-scaling", "--beta-fast", "--beta-slow", "--check-for-nan-in-loss"),
    *("--decoupled-lr", "--decoupled-min-lr", "--distributed-backend", "--finetune"),
    *("--eod-mask-loss", "--hysteresis", "--initial-loss-scale", "--load", "--local-rank"),
    *("--logging-level", "--loss-scale", "--loss-scale-window", "--lr", "--manual-gc"),
    *("--manual-gc-interval", "--max-restarts", "--merge-file", "--moe-per-layer-logging"),
    *("--moe-router-bias-update-rate", "--moe-router-pre-softmax", "--moe-z-loss-coeff"),
    *("--monitor-interval", "--mscale", "--mscale-all-dim", "--mtp-loss-scaling-factor"),
    *("--no-check-for-nan-in-loss-and-grad", "--no-create-attention-mask-in-dataloader"),
    *("--no-initialization", "--no-mmap-bin-files", "--num-workers"),
    *("--original-max-position-embeddings", "--rope-scaling-factor", "--rotary-percent"),
    *("--rotary-scaling-factor", "--rotary-seq-len-interpolation-factor", "--save", "--seed"),
    *("--sgd-momentum", "--split", "--use-cpu-initialization", "--use-dist-ckpt", "--tee"),
    *(
        "--train-data-path",
        "--train-iters",
        "--train-samples",
        "--dataloader-type",
        "--use-mcore-models",
        "--use-rope-scaling",
        "--vocab-file",
    ),
}
_HARMLESS = "logging, checkpoints, data, seeds, learning rate and angles of rotary embeddings"


def harmless(flag: str) -> bool:
    """Whether one of Megatron-LM's flags is known to change neither a model's size nor a step."""
    return flag in _NAMES or flag.startswith(_BEGINNINGS)


def unread_notes(
    unread: Iterable[str], harmless: Callable[[str], bool] = harmless, kind: str = "flag"
) -> list[str]:
    """Notes of what nobody looked at: names of what may matter, a count of the rest."""
    names = sorted(set(unread))
    telling = [name for name in names if not harmless(name)]
    count = len(names) - len(telling)
    notes = [f"not read: {', '.join(map(shown, telling))}"] if telling else []
    if count:
        flags = f"1 {kind}" if count == 1 else f"{count} {kind}s"
        notes.append(f"left out, as no step depends on them: {flags} of {_HARMLESS}")
    return notes
