"""What distinguishes one transformer from another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Head = Literal["lm", "mlm", "none"]
Scoring = Literal["softmax", "sigmoid"]
RopeScaling = Literal["none", "linear", "llama3", "yarn"]
Activation = Literal["usual", "gelu", "gelu_tanh", "silu", "relu", "relu_squared"]
Parallel = Literal["none", "own_norms", "shared_norm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSpec:
    """Everything that distinguishes one transformer from another.

    `padded_vocab_size` rows are stored and computed (None: no padding). `positions` is the length
    of a learned position table (0: none). `post_norm` is BERT's order, which has a norm after the
    embedding and none before the head. `fused_attention` and `dropout` change traffic and memory.
    Every norm adds `norm_epsilon` to the variance. `qk_norm` normalises each
    head's queries and keys. With `norms_after` parts of a layer have a norm behind them too, before
    they are added up (Gemma 2, arXiv:2408.00118). Layers see the last `window` tokens only (0: all
    of them), but for every `full_every`-th (0: none), which sees the whole sequence.

    The MLP's `activation` is usually SiLU of a gate, else GELU: exact with `post_norm`, by tanh
    without. Weights of norms are what is added to 1 with `offset_norms`. Embeddings are multiplied
    by `embedding_scale`, what parts add by `residual_scale`, logits by `logit_scale`, and scores by
    `attention_scale` (0: 1 / sqrt(head_dim)). A cap c makes c tanh(x / c) of scores
    (`attention_cap`) or logits (`logit_cap`; 0: none). With `alibi` scores fall with the distance,
    by another slope for each head (arXiv:2108.12409). `embedding_norm` is a norm behind the
    embedding, whose positions begin at row `first_position` of their table. In a
    `parallel_block` attention and MLP start from the same input, behind a norm of their own each or
    one for both.

    With `rope` pair i of a head turns by `rope_theta`^(-2i/d) a token; layers with a window turn by
    powers of `window_rope_theta` where it is above 0, unscaled, and every `unrotated_every`-th
    layer not at all. Of a head the first `rope_head_dim` values turn (0: all), in pairs (i, i +
    d/2), or with `rope_interleaved` of neighbours. `rope_scaling` makes angles
    `rope_factor` times smaller: linear all, llama3 and yarn those that turn less than
    `rope_low_freq_factor` times (YaRN: beta_slow) in `rope_original_positions` tokens, none that
    turn more than `rope_high_freq_factor` times (beta_fast), and part of those between. YaRN also
    scales sines and cosines, by `rope_attention_factor` (0: 0.1 ln(factor) + 1), which fused
    kernels do not take.

    Of `num_experts` experts of width `expert_ffn_hidden_size` a router picks `experts_per_token`,
    whose weights add up to 1 (`norm_topk_prob`) or are their shares among all experts.
    `router_aux_loss_coef` times a loss that is least where all experts get equally many tokens is
    added to the training loss (0: none, as where another mechanism balances them).
    `router_scoring` makes scores of the router's logits, among all experts or of each by itself,
    and a `router_bias` that no gradient trains is added where experts are chosen (DeepSeek-V3,
    arXiv:2412.19437, section 2.1.2); weights are multiplied by `routed_scaling_factor`.
    Where there are more than one of `expert_groups`, neighbours, a token's experts are all of the
    `groups_per_token` groups that suit it best, so that it goes to few nodes (DeepSeek-V3).
    `shared_expert_ffn_hidden_size` is the width of those that every token meets. The first
    `dense_layers` layers have a plain MLP, and of the others all but every `expert_every`-th.

    `predicted_tokens` beyond the next one have a layer each at the end, which joins the output of
    the last layer with the token before it and has logits and a loss of its own (DeepSeek-V3).

    `kv_lora_rank` above 0 is multi-head latent attention: keys and values are made from so many
    values of a token, queries from `q_lora_rank` (0: from the token itself). A head of queries and
    keys has `head_dim` values, the last `rope_head_dim` of them rotary and one for all heads'
    keys, neighbours turning together; a head of values has `value_head_dim`.

    `layer_pattern` names each layer of a hybrid, which then has one part only: M a Mamba-2 mixer,
    * attention, E experts, - a plain MLP. A mixer has `mamba_heads` heads of `mamba_head_dim`
    values with a state of `mamba_state` for each, and `mamba_groups` groups that share the
    projections to and from states.

    A sequence may be packed with samples that see themselves alone, of `sample_length` tokens in
    the mean over tokens: sum of l^2 over sum of l (0: it is one sample).

    With `lora_rank` above 0 all weights are frozen, and products among `lora_targets` (none: all of
    them) have adapters of that rank, which are trained (LoRA, `adapters.py`). The `modules_to_save`
    beside them are trained whole: the table of tokens (embed_tokens), the head's matrix (lm_head).
    """

    name: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    ffn_hidden_size: int
    vocab_size: int
    seq_len: int
    padded_vocab_size: int | None = None
    positions: int = 0
    token_types: int = 0
    rope: bool = False
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling = "none"
    rope_factor: float = 1.0
    rope_original_positions: int = 0
    rope_low_freq_factor: float = 1.0
    rope_high_freq_factor: float = 4.0
    rope_attention_factor: float = 0.0
    rope_interleaved: bool = False
    window_rope_theta: float = 0.0
    unrotated_every: int = 0
    alibi: bool = False
    first_position: int = 0
    norm_epsilon: float = 1e-5
    rms_norm: bool = False
    offset_norms: bool = False
    gated_mlp: bool = False
    activation: Activation = "usual"
    qkv_bias: bool = True
    projection_bias: bool = True
    mlp_bias: bool = True
    post_norm: bool = False
    embedding_norm: bool = False
    parallel_block: Parallel = "none"
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    attention_scale: float = 0.0
    logit_scale: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    tied_embeddings: bool = True
    causal: bool = True
    pooler: bool = False
    head: Head = "lm"
    fused_attention: bool = True
    dropout: bool = False
    qk_norm: bool = False
    norms_after: bool = False
    window: int = 0
    full_every: int = 0
    num_experts: int = 0
    experts_per_token: int = 0
    expert_groups: int = 1
    groups_per_token: int = 1
    expert_ffn_hidden_size: int = 0
    shared_expert_ffn_hidden_size: int = 0
    dense_layers: int = 0
    expert_every: int = 1
    norm_topk_prob: bool = True
    router_aux_loss_coef: float = 0.0
    router_scoring: Scoring = "softmax"
    router_bias: bool = False
    routed_scaling_factor: float = 1.0
    predicted_tokens: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_head_dim: int = 0
    value_head_dim: int = 0
    layer_pattern: str = ""
    mamba_heads: int = 0
    mamba_head_dim: int = 0
    mamba_state: int = 0
    mamba_groups: int = 1
    sample_length: int = 0
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ()
    modules_to_save: tuple[str, ...] = ()

    @property
    def vocab_rows(self) -> int:
        """Rows of the stored vocabulary table."""
        return self.padded_vocab_size or self.vocab_size

    @property
    def norm_parameters(self) -> int:
        """Weight, and bias where the norm has one."""
        return self.hidden_size * (1 if self.rms_norm else 2)

    @property
    def value_width(self) -> int:
        """Width of a head of values."""
        return self.value_head_dim or self.head_dim

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has experts in place of a plain MLP."""
        if self.layer_pattern:
            return self.layer_pattern[layer] == "E"
        beyond = layer - self.dense_layers
        return self.num_experts > 0 and beyond >= 0 and (beyond + 1) % self.expert_every == 0

    @property
    def query_scale(self) -> float:
        """What queries are multiplied with before a kernel that divides scores by sqrt(d)."""
        return (self.attention_scale or 0.0) * math.sqrt(self.head_dim) or 1.0

    @property
    def activation_kind(self) -> str:
        """Which function stands between the MLP's products."""
        if self.activation != "usual":
            return self.activation
        ungated = "gelu" if self.post_norm else "gelu_tanh"
        return "silu" if self.gated_mlp else ungated

    def is_local(self, layer: int) -> bool:
        """Whether a layer is one of those with a window, however long the sequence is."""
        full = self.full_every > 0 and (layer + 1) % self.full_every == 0
        return self.window > 0 and not full

    def has_window(self, layer: int) -> bool:
        """Whether a layer's queries see a window only."""
        return self.is_local(layer) and self.window < self.seq_len

    def turns(self, layer: int) -> bool:
        """Whether a layer has rotary positions."""
        return self.rope and not (
            self.unrotated_every > 0 and (layer + 1) % self.unrotated_every == 0
        )
