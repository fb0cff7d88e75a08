"""Batches: real text, deterministic, the same for every split, with errors that say why."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch")

from executor.model.loss import IGNORED  # noqa: E402
from executor.parallel.context import replica_rows  # noqa: E402
from executor.training.samples import BYTES, MASKED_SHARE, Corpus, batches  # noqa: E402
from parsim.errors import InputError, PlanError  # noqa: E402
from parsim.model.reader import model_spec  # noqa: E402
from tests.executor.word_file import word_file  # noqa: E402

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
    resumed, second = next(draw(seed=3, first_step=2)), next(draw(seed=4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(run, again, strict=True))
    assert torch.equal(resumed[0], run[2][0])
    assert not torch.equal(run[0][0], run[1][0])
    assert not torch.equal(run[0][0], second[0])


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
    shares = [tokens[replica_rows(6, r, (1,) * replicas)] for r in range(replicas)]
    assert torch.equal(torch.cat(shares), tokens)


def test_unequal_shares_are_refused() -> None:
    with pytest.raises(PlanError, match="4 replicas do not divide global_batch_size=6"):
        replica_rows(6, 0, (1,) * 4)


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
    def refuse(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("parsim.files._content", refuse)
    with pytest.raises(InputError, match=r"text\.txt: cannot be read: Permission denied"):
        Corpus.load(text_file)


def test_a_binary_file_is_refused_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"ab\xff")
    with pytest.raises(InputError, match="is not UTF-8 text: byte 0xff at 2"):
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
    gpt2 = replace(model_spec("gpt2"), seq_len=8, vocab_size=256)
    DIGITS.check(gpt2)
    with pytest.raises(InputError) as refused:
        DIGITS.check(replace(gpt2, vocab_size=255))
    assert str(refused.value) == (
        "gpt2: vocab_size=255 is below the 256 tokens of digits; use vocab_size >= 256, or another "
        "tokenizer"
    )
    with pytest.raises(InputError, match="200 tokens are fewer"):
        DIGITS.check(replace(gpt2, seq_len=300))


def test_a_tokenizer_without_its_package_says_what_to_install(
    text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r"install it with: pip install tokenizers, or"):
        Corpus.load(text_file, tokenizer=text_file)


# --------------------------------------------------------------------------- the real package


def test_a_tokenizer_file_makes_the_ids(text_file: Path, tmp_path: Path) -> None:
    path = word_file(tmp_path)
    corpus = Corpus.load(text_file, tokenizer=path)
    assert corpus.tokens.tolist() == [0, 1, 2, 9]
    assert corpus.tokens.dtype == np.int32
    assert corpus.source == f"{text_file} with {path}"


def test_ids_may_have_gaps_but_all_must_be_in_the_model(text_file: Path, tmp_path: Path) -> None:
    corpus = Corpus.load(text_file, tokenizer=word_file(tmp_path))
    assert (corpus.vocab_size, corpus.mask_token) == (10, 3)
    small = replace(model_spec("gpt2"), seq_len=2, vocab_size=10)
    corpus.check(small)
    with pytest.raises(InputError, match=r"vocab_size=9 is below the 10 tokens of .* with .*words"):
        corpus.check(replace(small, vocab_size=9))


def test_reading_with_a_tokenizer_twice_gives_the_same(text_file: Path, tmp_path: Path) -> None:
    text_file.write_text("the fox quick\n" * 999)
    path = word_file(tmp_path)
    first, second = (Corpus.load(text_file, tokenizer=path) for _ in range(2))
    assert first.tokens.tolist() == [0, 9, 1] * 999
    assert np.array_equal(first.tokens, second.tokens)


def test_a_tokenizer_that_cuts_and_pads_texts_reads_all_of_this_one(
    text_file: Path, tmp_path: Path
) -> None:
    cut = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    pad = {
        "strategy": {"Fixed": 50},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "the",
    }
    corpus = Corpus.load(text_file, tokenizer=word_file(tmp_path, truncation=cut, padding=pad))
    assert corpus.tokens.tolist() == [0, 1, 2, 9]


def test_nothing_is_put_around_the_text(text_file: Path, tmp_path: Path) -> None:
    around = {"type": "BertProcessing", "sep": ["fox", 9], "cls": ["[MASK]", 3]}
    corpus = Corpus.load(text_file, tokenizer=word_file(tmp_path, post_processor=around))
    assert corpus.tokens.tolist() == [0, 1, 2, 9]


def test_bytes_in_pairs(text_file: Path, tmp_path: Path) -> None:
    vocabulary = {letter: i for i, letter in enumerate("abcdefghiknopqrtuwx\u0120\u010a")}
    pairs = {"type": "BPE", "vocab": {**vocabulary, "ow": 21}, "merges": ["o w"]}
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    path = word_file(tmp_path, model=pairs, pre_tokenizer=level)
    corpus = Corpus.load(text_file, tokenizer=path)
    assert len(corpus.tokens) == len(text_file.read_bytes()) - 1
    assert corpus.tokens.tolist().count(21) == 1
    assert corpus.vocab_size == 22


def test_words_that_a_tokenizer_has_no_token_for(text_file: Path, tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"the": 0}, "unk_token": "[UNK]"}
    path = word_file(tmp_path, model=model)
    with pytest.raises(InputError, match=r"words\.json: cannot tokenise .*text\.txt: Word"):
        Corpus.load(text_file, tokenizer=path)


def test_a_tokenizer_that_makes_no_tokens(text_file: Path, tmp_path: Path) -> None:
    nothing = {"type": "BPE", "vocab": {"z": 0}, "merges": []}
    path = word_file(tmp_path, model=nothing)
    with pytest.raises(InputError, match=r"words\.json: makes no tokens of .*text\.txt; use"):
        Corpus.load(text_file, tokenizer=path)


@pytest.mark.parametrize("content", ["", "{}", "[]", "the quick", '{"model": {"type": "BPE"'])
def test_a_broken_tokenizer_file_is_named(text_file: Path, tmp_path: Path, content: str) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(InputError, match=r"t\.json: not a tokenizer file: "):
        Corpus.load(text_file, tokenizer=tmp_path / "t.json")


def test_a_tokenizer_that_cannot_be_read(text_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(InputError, match=r"gone\.json: no such file"):
        Corpus.load(text_file, tokenizer=tmp_path / "gone.json")
    with pytest.raises(InputError, match="is a folder; give one file"):
        Corpus.load(text_file, tokenizer=tmp_path)
    (tmp_path / "t.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"t\.json: is not UTF-8 text: byte 0xff at 0"):
        Corpus.load(text_file, tokenizer=tmp_path / "t.json")
