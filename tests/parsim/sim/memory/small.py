"""A small Llama on two CPU ranks, whose bytes can be counted by hand."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options

H, F, V, T = 64, 128, 512, 16
"""Width, width of the MLP, words, tokens."""


def small_job(num_layers: int, words: int = V) -> Job:
    """The job of so many layers, and of so many words, under parsim's executor."""
    spec = with_options(
        model_spec("llama3-8b"),
        num_layers=num_layers,
        hidden_size=H,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        ffn_hidden_size=F,
        vocab_size=words,
        seq_len=T,
    )
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("cpu"), num_nodes=1),
        software=software("executor-cpu"),
    )
