"""A tokenizer's file, for tests that read text with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

WORDS = {"the": 0, "quick": 1, "[UNK]": 2, "[MASK]": 3, "fox": 9}


def word_file(folder: Path, **changes: object) -> Path:
    """A tokenizer.json that splits at spaces and knows a few words."""
    pytest.importorskip("tokenizers")
    document: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"},
    }
    path = folder / "words.json"
    path.write_text(json.dumps({**document, **changes}), encoding="utf-8")
    return path
