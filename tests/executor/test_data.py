"""Batches: real text, deterministic, the same for every split, with errors that say why."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch")

from executor.data import BYTES, MASKED_SHARE, NUL, Corpus, batches, replica_rows  # noqa: E402
from executor.loss import IGNORED  # noqa: E402
from parsim.errors import InputError, PlanError  # noqa: E402
from parsim.model.reader import model_spec  # noqa: E402

DIGITS = Corpus(source="digits", tokens=np.arange(200, dtype=np.int32))


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("the quick brown fox\n", encoding="utf-8")
    return file


def first(
    corpus: Corpus, *, rows: int = 6, seq_len: int = 8, masked: bool = False
) -> tuple[Tensor, Tensor]:
    return next(batches(corpus, seed=1, global_batch_size=rows, seq_len=seq_len, masked=masked))


def test_the_default_is_english_text() -> None:
    corpus = Corpus.load()
    text = bytes(corpus.tokens.astype(np.uint8)).decode()
    assert len(text) > 100_000
    assert text.count(" the ") > 1000
    assert corpus.vocab_size == BYTES


def test_a_file_is_read_byte_by_byte(text_file: Path) -> None:
    corpus = Corpus.load(text_file)
    assert bytes(corpus.tokens.astype(np.uint8)) == text_file.read_bytes()
    assert corpus.source == str(text_file)


def test_letters_beyond_ascii_are_several_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("é", encoding="utf-8")
    assert Corpus.load(tmp_path / "a").tokens.tolist() == [0xC3, 0xA9]


def test_a_folder_is_read_in_order_of_names_without_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in {"b": "2", "a": "1", "sub/c": "3", ".git": "x"}.items():
        (tmp_path / name).write_text(text)
    corpus = Corpus.load(tmp_path)
    assert bytes(corpus.tokens.astype(np.uint8)) == b"1\n2\n3"


def test_targets_are_the_next_tokens() -> None:
    tokens, targets = first(DIGITS)
    assert tokens.shape == targets.shape == (6, 8)
    assert tokens.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, tokens + 1)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])


def test_batches_depend_on_seed_and_step_alone() -> None:
    draw = partial(batches, DIGITS, global_batch_size=4, seq_len=8)
    run, again = list(islice(draw(seed=3), 3)), list(islice(draw(seed=3), 3))
    resumed, other = next(draw(seed=3, first_step=2)), next(draw(seed=4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(run, again, strict=True))
    assert torch.equal(resumed[0], run[2][0])
    assert not torch.equal(run[0][0], run[1][0])
    assert not torch.equal(run[0][0], other[0])


def test_all_of_the_text_is_drawn_from() -> None:
    tokens, targets = first(DIGITS, rows=3000, seq_len=1)
    assert tokens.unique().tolist() == list(range(199))
    assert targets.max() == 199


def test_a_text_of_seq_len_plus_one_is_enough() -> None:
    tokens, _ = first(DIGITS, seq_len=199)
    assert torch.equal(tokens[0], torch.arange(199))


@pytest.mark.parametrize("replicas", [1, 2, 3, 6])
def test_replicas_share_the_batch_without_overlap(replicas: int) -> None:
    tokens, _ = first(DIGITS)
    shares = [tokens[replica_rows(6, r, replicas)] for r in range(replicas)]
    assert torch.equal(torch.cat(shares), tokens)


def test_unequal_shares_are_refused() -> None:
    with pytest.raises(PlanError, match="4 replicas do not divide global_batch_size=6"):
        replica_rows(6, 0, 4)


def test_masked_batches_hide_equally_many_tokens_in_each_sequence() -> None:
    tokens, targets = first(replace(DIGITS, mask_token=255), seq_len=40, masked=True)
    plain, _ = first(DIGITS, seq_len=40)
    hidden = targets != IGNORED
    assert hidden.sum(dim=1).tolist() == [round(MASKED_SHARE * 40)] * 6
    assert (tokens[hidden] == 255).all()
    assert torch.equal(tokens[~hidden], plain[~hidden])
    assert torch.equal(targets[hidden], plain[hidden])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.txt: no such file"):
        Corpus.load(tmp_path / "gone.txt")


def test_an_unreadable_file_is_named(text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"text\.txt: cannot be read: Permission denied"):
        Corpus.load(text_file)


def test_a_binary_file_is_refused_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"ab\xff")
    with pytest.raises(InputError, match="not UTF-8 text: byte 0xff at 2"):
        Corpus.load(tmp_path / "x.bin")


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "empty").write_text(text)
    with pytest.raises(InputError, match="there is no text in it"):
        Corpus.load(tmp_path / "empty")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no text in it"):
        Corpus.load(tmp_path)


def test_a_python_without_its_documentation_asks_for_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(InputError, match="name a text file"):
        Corpus.load()


def test_a_short_text_is_refused_before_the_first_batch() -> None:
    with pytest.raises(InputError, match="200 tokens are fewer than seq_len \\+ 1 = 201"):
        batches(DIGITS, seed=0, global_batch_size=1, seq_len=200)


def test_a_model_with_fewer_words_than_the_text_is_refused() -> None:
    DIGITS.check(replace(model_spec("gpt2"), vocab_size=256), 8)
    with pytest.raises(InputError, match="vocab_size=255 is below the 256 tokens"):
        DIGITS.check(replace(model_spec("gpt2"), vocab_size=255), 8)
    with pytest.raises(InputError, match="200 tokens are fewer"):
        DIGITS.check(model_spec("gpt2"), 300)


def test_a_tokenizer_without_its_package_says_what_to_install(
    text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match="pip install tokenizers"):
        Corpus.load(text_file, tokenizer=text_file)


class Words:
    """Stands in for the optional package's Tokenizer: a vocabulary of four words."""

    vocabulary = ("the", "quick", "brown", "fox")

    @classmethod
    def from_str(cls, content: str) -> Words:
        if content != "words":
            raise Exception("expected words")
        return cls()

    def encode(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(ids=[self.vocabulary.index(word) for word in text.split()])

    def token_to_id(self, token: str) -> int | None:
        return None if token == "[MASK]" else self.vocabulary.index(token)

    def get_vocab_size(self) -> int:
        return len(self.vocabulary)


def test_a_tokenizer_file_makes_the_ids(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Words))
    (tmp_path / "words.json").write_text("words")
    corpus = Corpus.load(text_file, tokenizer=tmp_path / "words.json")
    assert corpus.tokens.tolist() == [0, 1, 2, 3]
    assert (corpus.vocab_size, corpus.mask_token) == (4, NUL)


def test_a_broken_tokenizer_file_is_named(text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Words))
    with pytest.raises(InputError, match=r"text\.txt: not a tokenizer file: expected words"):
        Corpus.load(text_file, tokenizer=text_file)


def test_the_real_package_reads_its_own_file(text_file: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("tokenizers")
    words = package.models.WordLevel({"the": 0, "[UNK]": 1, "[MASK]": 2}, unk_token="[UNK]")
    made = package.Tokenizer(words)
    made.pre_tokenizer = package.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "t.json"))
    corpus = Corpus.load(text_file, tokenizer=tmp_path / "t.json")
    assert corpus.tokens.tolist() == [0, 1, 1, 1]
    assert (corpus.vocab_size, corpus.mask_token) == (3, 2)
