"""Small transformers over the range of sizes that plans have: calibrated whatever is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from executor.calibration.cases.workloads import CHAIN, Workload
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualSize:
    """A small transformer of one width, its micro-batch and its tensor split; GPT-like or Llama.

    `width`, `heads` (whose size is width / heads), `seq_len` and `vocab` are the model's;
    `microbatch` is sequences.
    """

    width: int
    heads: int
    seq_len: int
    microbatch: int
    vocab: int
    llama: bool = False
    tp: int = 1
    sequence_parallel: bool = False

    def workload(self, used: str) -> Workload:
        """A model of this size and its plan in a precision."""
        plan = Plan(
            tp=self.tp,
            sequence_parallel=self.sequence_parallel,
            microbatch_size=self.microbatch,
            precision=used,
        )
        return Workload(spec=self._spec, plan=plan)

    @property
    def _spec(self) -> TransformerSpec:
        """A short transformer of that width, of GPT's or of Llama's kind."""
        return TransformerSpec(
            name=f"spread-{self.width}",
            num_layers=CHAIN,
            hidden_size=self.width,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads // 2 if self.llama else self.heads,
            head_dim=self.width // self.heads,
            ffn_hidden_size=self.width * (3 if self.llama else 4),
            vocab_size=self.vocab,
            seq_len=self.seq_len,
            positions=0 if self.llama else self.seq_len,
            rope=self.llama,
            rms_norm=self.llama,
            gated_mlp=self.llama,
            qkv_bias=not self.llama,
            projection_bias=not self.llama,
            mlp_bias=not self.llama,
            tied_embeddings=not self.llama,
        )


CPU_SIZES = (
    UsualSize(width=128, heads=2, seq_len=128, microbatch=1, vocab=2048),
    UsualSize(width=256, heads=4, seq_len=128, microbatch=1, vocab=4096),
    UsualSize(width=256, heads=4, seq_len=128, microbatch=1, vocab=4096, tp=2),
    UsualSize(
        width=256, heads=4, seq_len=128, microbatch=1, vocab=4096, tp=2, sequence_parallel=True
    ),
    UsualSize(width=384, heads=6, seq_len=256, microbatch=2, vocab=8192),
    UsualSize(width=384, heads=6, seq_len=256, microbatch=2, vocab=8192, tp=2),
    UsualSize(width=384, heads=6, seq_len=128, microbatch=1, vocab=8192, llama=True),
    UsualSize(width=640, heads=10, seq_len=256, microbatch=1, vocab=8192),
    UsualSize(width=640, heads=10, seq_len=256, microbatch=1, vocab=8192, tp=2),
    UsualSize(
        width=640, heads=10, seq_len=256, microbatch=1, vocab=8192, tp=2, sequence_parallel=True
    ),
    UsualSize(width=768, heads=12, seq_len=128, microbatch=1, vocab=50304),
)
GPU_SIZES = (
    UsualSize(width=768, heads=12, seq_len=1024, microbatch=4, vocab=50304),
    UsualSize(width=1280, heads=20, seq_len=1024, microbatch=8, vocab=50304),
    UsualSize(width=2048, heads=16, seq_len=2048, microbatch=2, vocab=32000, llama=True),
    UsualSize(width=2048, heads=16, seq_len=1024, microbatch=1, vocab=32000, llama=True),
    UsualSize(width=4096, heads=32, seq_len=2048, microbatch=1, vocab=32000, llama=True),
    UsualSize(width=2048, heads=16, seq_len=2048, microbatch=2, vocab=32000, llama=True, tp=2),
    UsualSize(
        width=2048,
        heads=16,
        seq_len=2048,
        microbatch=2,
        vocab=32000,
        llama=True,
        tp=2,
        sequence_parallel=True,
    ),
)
"""Sizes that training on a core and on a GPU meets; CHAIN layers each."""


def usual_workloads(kind: str, used: str) -> tuple[Workload, ...]:
    """Sizes over the range that training on a CPU core or a GPU meets, in one precision."""
    sizes = CPU_SIZES if kind == "cpu" else GPU_SIZES
    return tuple(size.workload(used) for size in sizes)
