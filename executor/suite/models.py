"""Models of the suite as blocks of a scenario file: small ones for CPU ranks, large ones for GPUs.

Parameters of the small ones: 4 layers x 12 x 384^2 = 7.1e6 and tables; 4 layers x (3 x 512^2 +
3 x 512 x 1536) = 12.6e6 and two tables of 2048 x 512; 4 layers x (8 x 3 x 384 x 768 + 2.7 x 384^2)
= 29.9e6. Each of another kind on the CPU has a large one like it.
"""

from __future__ import annotations

TINY = {"family": "gpt2", "name": "gpt-tiny", "num_layers": 2, "hidden_size": 64,
        "num_attention_heads": 4, "vocab_size": 256, "seq_len": 32}  # fmt: skip
SMALL = {"family": "gpt2", "name": "gpt-7m", "num_layers": 4, "hidden_size": 384,
         "num_attention_heads": 6, "vocab_size": 1024, "seq_len": 128}  # fmt: skip
MEDIUM = {"family": "llama", "name": "llama-15m", "num_layers": 4, "hidden_size": 512,
          "num_attention_heads": 8, "num_key_value_heads": 4, "ffn_hidden_size": 1536,
          "vocab_size": 2048, "seq_len": 256}  # fmt: skip
MIXTURE = {"family": "mixtral", "name": "mixture-30m", "num_layers": 4, "hidden_size": 384,
           "num_attention_heads": 6, "num_key_value_heads": 2, "num_experts": 8,
           "experts_per_token": 2, "expert_ffn_hidden_size": 768, "ffn_hidden_size": 768,
           "vocab_size": 1024, "seq_len": 128}  # fmt: skip

ADAPTED = {**MEDIUM, "name": "llama-15m-lora", "lora_rank": 16}
WINDOWED = {"family": "gemma3_text", "name": "gemma-7m", "num_layers": 4, "hidden_size": 384,
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64,
            "ffn_hidden_size": 1024, "vocab_size": 1024, "seq_len": 128, "window": 64,
            "full_every": 2}  # fmt: skip
PARALLEL = {"family": "gpt_neox", "name": "neox-7m", "num_layers": 4, "hidden_size": 384,
            "num_attention_heads": 6, "vocab_size": 1024, "seq_len": 128,
            "rope_head_dim": 16}  # fmt: skip
LATENT = {"family": "deepseek_v2", "name": "latent-15m", "num_layers": 4, "hidden_size": 384,
          "num_attention_heads": 6, "head_dim": 96, "kv_lora_rank": 128, "rope_head_dim": 32,
          "value_head_dim": 64, "num_experts": 8, "experts_per_token": 2,
          "expert_ffn_hidden_size": 256, "shared_expert_ffn_hidden_size": 512,
          "dense_layers": 1, "ffn_hidden_size": 1024, "vocab_size": 1024,
          "seq_len": 128}  # fmt: skip

GPT2 = {"name": "gpt2", "dropout": False}
GPT2_EVEN = {**GPT2, "padded_vocab_size": 50304}
"""50,257 rows do not split over two ranks; padded to a multiple of 128, as Megatron-LM does."""
GPT2_LARGE = {"name": "gpt2-large", "dropout": False}
LLAMA = {"family": "llama", "name": "llama-1b", "num_layers": 16, "hidden_size": 2048,
         "num_attention_heads": 32, "num_key_value_heads": 8, "ffn_hidden_size": 8192,
         "vocab_size": 32000, "seq_len": 2048}  # fmt: skip
BERT = {"name": "bert-large", "head": "mlm", "dropout": False}
RESNET, VGG = {"name": "resnet50"}, {"name": "vgg16"}
LLAMA_ADAPTED = {**LLAMA, "name": "llama-1b-lora", "lora_rank": 16}
PYTHIA = {"family": "gpt_neox", "name": "pythia-1b", "num_layers": 16, "hidden_size": 2048,
          "num_attention_heads": 8, "vocab_size": 50304, "seq_len": 2048,
          "rope_head_dim": 64}  # fmt: skip
GEMMA = {"family": "gemma3_text", "name": "gemma3-1b", "num_layers": 26, "hidden_size": 1152,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
         "ffn_hidden_size": 6912, "vocab_size": 262144, "seq_len": 2048, "window": 512,
         "full_every": 6}  # fmt: skip
DEEPSEEK = {"family": "deepseek_v2", "name": "deepseek-1b", "num_layers": 12, "hidden_size": 1024,
            "num_attention_heads": 16, "head_dim": 192, "kv_lora_rank": 512, "rope_head_dim": 64,
            "value_head_dim": 128, "num_experts": 32, "experts_per_token": 4,
            "expert_ffn_hidden_size": 704, "shared_expert_ffn_hidden_size": 1408,
            "dense_layers": 1, "ffn_hidden_size": 4096, "vocab_size": 32000,
            "seq_len": 2048}  # fmt: skip
"""Sizes of pythia-1b and gemma-3-1b are those of their config.json; the last one is of none."""

TITLES = {
    "gpt2": "GPT-2 124M",
    "gpt2-large": "GPT-2 774M",
    "llama-1b": "Llama 1B",
    "llama-1b-lora": "Llama 1B, LoRA",
    "pythia-1b": "Pythia 1B",
    "gemma3-1b": "Gemma 3 1B",
    "deepseek-1b": "latent attention and experts, 1B",
    "bert-large": "BERT-large",
    "resnet50": "ResNet-50",
    "vgg16": "VGG-16",
}
"""What the large ones are called in reports, by their names."""
