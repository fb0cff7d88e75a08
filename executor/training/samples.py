"""What is trained on, the same whatever the parallelism: text as token ids, or images.

A step's batch depends on the corpus, the seed and the step alone; every replica makes the whole
batch and takes its rows. Without a file the text is the language reference that CPython carries.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.model.loss import IGNORED
from executor.model.stage import text_length, words
from parsim.arrays import Index
from parsim.errors import InputError
from parsim.files import MOST_CORPUS, read_text
from parsim.model.graph.losses import classes
from parsim.model.graph.record import Graph
from parsim.model.reader import Description

BYTES = 256
"""Vocabulary of a text taken byte by byte."""

NUL = 0
"""The byte that stands for a masked token: it does not occur in text."""

HELD_OUT = 20
"""One token of so many is kept for evaluations, where there are any."""

MASKED_SHARE = 0.15
"""Share of tokens hidden from a masked language model (Devlin et al. 2019, section 3.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Token ids (n,) of one text; `source` says which, `mask_token` replaces a hidden token.

    Ids are below `vocab_size`, be there gaps between them or not.
    """

    source: str
    tokens: NDArray[np.int32]
    vocab_size: int = BYTES
    mask_token: int = NUL

    @classmethod
    def load(cls, path: Path | None = None, *, tokenizer: Path | None = None) -> Corpus:
        """Read a text file, all files of a folder, or by default CPython's own documentation.

        By bytes, or with a Hugging Face `tokenizer.json` if the package tokenizers is installed.
        The text is one sequence: no token that begins or ends a document is put around it.

        Raises:
            InputError: something cannot be read, is not text, is empty or has no tokens.
        """
        text = _default_text() if path is None else _read(path)
        source = "pydoc_data.topics" if path is None else str(path)
        if not text.strip():
            raise InputError(f"{source}: there is no text in it; name a file with text")
        if tokenizer is not None:
            return _tokenised(text, source, tokenizer)
        ids = np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32)
        return cls(source=source, tokens=ids)

    def halves(self) -> tuple[Corpus, Corpus]:
        """The text to train on, and its end, a twentieth, to evaluate with."""
        cut = len(self.tokens) - len(self.tokens) // HELD_OUT
        last = f"the last 1/{HELD_OUT} of {self.source}"
        return replace(self, tokens=self.tokens[:cut]), replace(
            self, tokens=self.tokens[cut:], source=last
        )

    def check(self, spec: Description) -> None:
        """Refuse a model that this text cannot feed.

        Raises:
            InputError: the vocabulary is larger than the model's, or the text is too short.
        """
        if words(spec) < self.vocab_size:
            raise InputError(
                f"{spec.name}: vocab_size={words(spec)} is below the {self.vocab_size} tokens "
                f"of {self.source}; use vocab_size >= {self.vocab_size}, or another tokenizer"
            )
        _check_length(self, text_length(spec))


def batches(
    corpus: Corpus,
    *,
    seed: int,
    global_batch_size: int,
    seq_len: int,
    masked: bool = False,
    first_step: int = 0,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Return an endless iterator over batches of ids (b, s): tokens and targets, from `first_step`.

    A target is the next token. With `masked` (models that see both sides) some tokens are hidden
    and only they have targets, equally many in each sequence, so that micro-batches weigh equally.

    Raises:
        InputError: the text is shorter than seq_len + 1.
    """
    _check_length(corpus, seq_len)
    shape = (global_batch_size, seq_len)
    steps = count(first_step)
    return (_batch(corpus, np.random.default_rng((seed, step)), shape, masked) for step in steps)


def _batch(
    corpus: Corpus, draw: np.random.Generator, shape: tuple[int, int], masked: bool
) -> tuple[Tensor, Tensor]:
    rows, seq_len = shape
    starts = draw.integers(0, len(corpus.tokens) - seq_len, size=rows)
    windows = corpus.tokens[starts[:, None] + np.arange(seq_len + 1)].astype(np.int64)
    tokens, targets = windows[:, :-1].copy(), windows[:, 1:].copy()
    if masked:
        targets = _hide(tokens, draw, corpus.mask_token)
    return torch.from_numpy(tokens), torch.from_numpy(targets)


def _hide(tokens: Index, draw: np.random.Generator, mask_token: int) -> Index:
    hidden = max(1, round(MASKED_SHARE * tokens.shape[1]))
    places = draw.random(tokens.shape).argsort(axis=1)[:, :hidden]
    targets = np.full_like(tokens, IGNORED)
    np.put_along_axis(targets, places, np.take_along_axis(tokens, places, axis=1), axis=1)
    np.put_along_axis(tokens, places, mask_token, axis=1)
    return targets


def _check_length(corpus: Corpus, seq_len: int) -> None:
    if len(corpus.tokens) < seq_len + 1:
        raise InputError(
            f"{corpus.source}: {len(corpus.tokens)} tokens are fewer than seq_len + 1 = "
            f"{seq_len + 1}; use a longer text or seq_len <= {max(len(corpus.tokens) - 1, 0)}"
        )


def _default_text() -> str:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        raise InputError(
            "this Python carries no pydoc_data, the default text; name a text file"
        ) from None
    return "\n".join(topics[name] for name in sorted(topics))


def _read(path: Path) -> str:
    if not path.exists():
        raise InputError(f"{path}: no such file; name a text file or a folder of text files")
    files = [path]
    if path.is_dir():
        inside = ((p, p.relative_to(path).parts) for p in path.rglob("*") if p.is_file())
        files = sorted(p for p, parts in inside if not any(part.startswith(".") for part in parts))
    return "\n".join(read_text(file, most=MOST_CORPUS) for file in files)


def _tokenised(text: str, source: str, file: Path) -> Corpus:
    """Read the whole text with a tokenizer, whatever length its file would cut or pad texts to."""
    tokenizer = _load_tokenizer(file)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        ids = np.asarray(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)
    except Exception as error:  # the package raises bare Exception
        raise InputError(f"{file}: cannot tokenise {source}: {error}") from None
    if not len(ids):
        raise InputError(f"{file}: makes no tokens of {source}; use a tokenizer of its language")
    mask = tokenizer.token_to_id("[MASK]")
    return Corpus(
        source=f"{source} with {file}",
        tokens=ids,
        vocab_size=1 + max(tokenizer.get_vocab().values()),
        mask_token=NUL if mask is None else mask,
    )


def _load_tokenizer(file: Path) -> Any:  # noqa: ANN401 - the package is optional and untyped
    try:
        package = importlib.import_module("tokenizers")
    except ImportError:
        raise InputError(
            f"--tokenizer={file} needs the package tokenizers, which is not installed; install it "
            "with: pip install tokenizers, or leave the tokenizer out to read bytes"
        ) from None
    content = read_text(file)
    try:
        return package.Tokenizer.from_str(content)
    except Exception as error:  # the package raises bare Exception
        raise InputError(f"{file}: not a tokenizer file: {error}") from None


NOISE = 1.0
"""Standard deviation of the noise over that of the patterns."""

MOST_PATTERNS = 64
"""Patterns in memory: classes beyond share them, and differ in sign and order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Synthetic images for a graph: `shape` of one, and how many `classes` each task tells apart.

    A class has a pattern of its own; an image is its class's pattern under noise. Both depend on
    the seed alone, a batch on the seed and the step: every replica makes the whole batch and takes
    its rows, as with text.

    The class of an image is that of the task with the most; others tell apart what is left of it.
    """

    shape: tuple[int, ...]
    classes: tuple[int, ...]

    @classmethod
    def of(cls, graph: Graph) -> Images:
        """Images of the shape that enters a graph, of the classes its losses choose among."""
        return cls(shape=graph.input_shape, classes=classes(graph))

    def batches(
        self, *, seed: int, global_batch_size: int, first_step: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Return an endless iterator over (images (b, c, h, w), classes (b, tasks))."""
        patterns = self._patterns(seed)
        return (self._batch(patterns, seed, step, global_batch_size) for step in count(first_step))

    def _patterns(self, seed: int) -> Tensor:
        draw = np.random.default_rng((seed, 0))
        size = (min(max(self.classes), MOST_PATTERNS), *self.shape)
        return torch.from_numpy(draw.standard_normal(size, dtype=np.float32))

    def _batch(self, patterns: Tensor, seed: int, step: int, size: int) -> tuple[Tensor, Tensor]:
        draw = np.random.default_rng((seed, 1, step))
        drawn = torch.from_numpy(draw.integers(0, max(self.classes), size=size))
        noise = torch.from_numpy(draw.standard_normal((size, *self.shape), dtype=np.float32))
        signs = 1.0 - 2.0 * (drawn // len(patterns) % 2)
        images = patterns[drawn % len(patterns)] * signs.view(-1, *[1] * len(self.shape)).float()
        return images + NOISE * noise, drawn[:, None] % torch.tensor(self.classes)
