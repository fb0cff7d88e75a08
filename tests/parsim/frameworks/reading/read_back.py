"""Launch files that are read as scenarios."""

from __future__ import annotations

from pathlib import Path

from parsim.frameworks.reading import read_config
from parsim.scenario import Scenario, load_scenario


def read(tmp_path: Path, text: str, name: str = "train.sh", nodes: int | None = None) -> Scenario:
    file, made = tmp_path / name, tmp_path / "made.yaml"
    file.write_text(text, encoding="utf-8")
    made.write_text(read_config(file, "dgx-a100", nodes)[0], encoding="utf-8")
    return load_scenario(made)


SCRIPT = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1   # a comment with --tensor-model-parallel-size 64
torchrun --nproc_per_node 8 --nnodes=2 pretrain_gpt.py \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 \\
  --num-layers-per-virtual-pipeline-stage 4 \\
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size=14336 \\
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \\
  --position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 128256 \\
  --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --bf16 \\
  --use-distributed-optimizer --sequence-parallel --lr 3e-4 --moe-aux-loss-coeff 0.1
"""
