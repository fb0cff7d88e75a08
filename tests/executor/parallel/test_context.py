"""Which tokens a context rank holds, and attention put together from blocks of keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from executor.model.attention.window import mask  # noqa: E402
from executor.parallel.context import rank_part, token_places  # noqa: E402
from executor.parallel.gathered import blocks  # noqa: E402
from executor.parallel.ring import SeenPart, part, put_in  # noqa: E402
from executor.parallel.token_order import by_rank, in_sequence, spans  # noqa: E402
from executor.torch_internals import kernels  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from tests.executor.workers.specs import BERT, GPT  # noqa: E402

DEGREES = st.sampled_from([1, 2, 4, 8])


@given(DEGREES, st.booleans())
def test_every_token_is_on_one_rank(cp: int, causal: bool) -> None:
    spec = GPT if causal else BERT
    places = [token_places(spec, cp, index) for index in range(cp)]
    assert sorted(torch.cat(places).tolist()) == list(range(spec.seq_len))
    assert all(
        tokens_of_rank.tolist() == sorted(tokens_of_rank.tolist()) for tokens_of_rank in places
    )


@given(DEGREES)
def test_causal_ranks_have_the_same_work(cp: int) -> None:
    """A token at place p sees p + 1 keys."""
    seen = [int((token_places(GPT, cp, index) + 1).sum()) for index in range(cp)]
    assert len(set(seen)) == 1


def test_two_ranks_hold_pieces_from_either_end() -> None:
    spec = replace(GPT, seq_len=8)
    assert token_places(spec, 2, 0).tolist() == [0, 1, 6, 7]
    assert token_places(spec, 2, 1).tolist() == [2, 3, 4, 5]
    assert token_places(replace(BERT, seq_len=8), 2, 1).tolist() == [4, 5, 6, 7]


def test_a_rank_trains_on_its_rows_and_places() -> None:
    plan = Plan(cp=2, dp_replicate=2)
    whole = torch.arange(4 * 16).view(4, 16)
    parts = [rank_part(GPT, plan, rank, (whole,))[0] for rank in range(4)]
    assert [tuple(part.shape) for part in parts] == [(2, 8)] * 4
    assert sorted(torch.cat([part.flatten() for part in parts]).tolist()) == list(range(64))
    assert parts[0][0].tolist() == [0, 1, 2, 3, 12, 13, 14, 15]  # replica 0, the ends


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_blocks_add_up_to_the_whole(kv_heads: int, causal: bool) -> None:
    """All ranks' blocks in this process, forward and backward, beside torch's attention."""
    size, tokens, spec = 4, 4, replace(GPT if causal else BERT, seq_len=16)
    places = [token_places(spec, size, index) for index in range(size)]
    generator = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(2, heads, 16, 8, generator=generator, requires_grad=True)
        for heads in (4, kv_heads, kv_heads)
    )
    expected = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != 4)
    grad = torch.randn(expected.shape, generator=generator)
    wanted = torch.autograd.grad(expected, (q, k, v), grad)
    result = [torch.zeros_like(entry) for entry in wanted]
    with torch.no_grad():
        for rank, here in enumerate(places):
            order = [rank, *(source for source in range(size) if source != rank)]
            seen = [part(rank, source, tokens, causal=causal) for source in order]
            mine = q[:, :, here]
            out, lse = mine, mine
            for source, (queries, keys, masked) in zip(order, seen, strict=True):
                there = places[source][keys]
                block = k[:, :, there], v[:, :, there]
                more = kernels.attend(mine[:, :, queries], *block, causal=masked)
                if source == rank:
                    out, lse = more
                else:
                    put_in(out[:, :, queries], lse[:, :, queries], *more)
            torch.testing.assert_close(out, expected[:, :, here])
            for source, (queries, keys, masked) in zip(order, seen, strict=True):
                there = places[source][keys]
                ends = (x[:, :, queries] for x in (out, lse))
                parts = kernels.attend_backward(
                    grad[:, :, here[queries]],
                    mine[:, :, queries],
                    k[:, :, there],
                    v[:, :, there],
                    *ends,
                    causal=masked,
                )
                for total, piece, at in zip(
                    result, parts, (here[queries], there, there), strict=True
                ):
                    total[:, :, at] += piece
    for entry, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(entry, other)


@pytest.mark.parametrize("window", [None, 130])
@pytest.mark.parametrize("causal", [True, False])
def test_gathered_blocks_are_what_each_query_sees(causal: bool, window: int | None) -> None:
    """Pieces of 256 tokens: with a window two tiles of queries each, whatever piece it is."""
    ranks, tokens = 3, 512 if causal else 256
    whole = torch.arange(ranks * tokens)
    square = whole.unsqueeze(1) - whole
    wanted = torch.ones_like(square, dtype=torch.bool)
    if causal:
        wanted = (square >= 0) & (square < (window or ranks * tokens))
    for rank in range(ranks):
        places = torch.cat([whole[piece] for piece in spans(rank, ranks, tokens, causal=causal)])
        seen = torch.zeros(tokens, ranks * tokens, dtype=torch.long)
        for block in blocks(rank, ranks, tokens, causal=causal, window=window if causal else None):
            part = torch.ones_like(seen[block.queries, block.keys])
            if block.causal:
                part = part.tril()
            if block.places is not None and window is not None:
                shown = mask(block.places, block.keys, window, torch.empty(0)) == 0
                part = shown.long()
            seen[block.queries, block.keys] += part
        assert torch.equal(seen, wanted[places].long())


@pytest.mark.parametrize("causal", [True, False])
def test_a_sequence_in_its_order_and_by_rank(causal: bool) -> None:
    whole = torch.arange(2 * 12 * 3).view(2, 12, 3)
    parts = by_rank(whole, 3, causal=causal)
    assert torch.equal(in_sequence(parts.unbind(), causal=causal), whole)
    spec = replace(GPT if causal else BERT, seq_len=12)
    for rank, part_ in enumerate(parts):
        assert torch.equal(part_, whole[:, token_places(spec, 3, rank)])


def test_foreign_blocks_are_half_seen() -> None:
    assert part(1, 1, 8, causal=True) == SeenPart(slice(None), slice(None), causal=True)
    assert part(1, 0, 8, causal=True) == SeenPart(slice(None), slice(0, 4), causal=False)
    assert part(1, 2, 8, causal=True) == SeenPart(slice(4, None), slice(None), causal=False)
    assert part(1, 2, 8, causal=False) == SeenPart(slice(None), slice(None), causal=False)


class _Sums(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Notes which sums of exponentials reach the backward of attention side by side in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.contiguous: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._scaled_dot_product_flash_attention_backward.default:
            self.contiguous.append(args[5].is_contiguous())
        return func(*args, **(kwargs or {}))


def test_a_gpus_backward_gets_sums_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the queries too: that kernel does not look at strides."""
    monkeypatch.setitem(kernels._KERNELS, "meta", kernels._KERNELS["cuda"])
    q = torch.empty(2, 4, 16, 8, device="meta", dtype=torch.bfloat16)
    out, lse = kernels.attend(q, q, q, causal=False)
    late = slice(8, None)
    here, sums = q[:, :, late], lse[:, :, late]
    assert not sums.is_contiguous()
    with _Sums() as seen:
        kernels.attend_backward(here, here, q, q, out[:, :, late], sums, causal=False)
    assert seen.contiguous == [True]
