"""Fitted values written into YAML text: the pair changes, everything else stays."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError
from parsim.fitting.constants.address import KINDS, Address
from parsim.fitting.constants.write import with_value, write_values

DATE = "2031-02-03"
SYSTEMS = """\
# Systems: a comment above.

systems:
  dgx:  # the first
    name: a node
    intra:
      efficiency: [0.815, "make fit, 2026-11-21: reports/fit.md; NCCL reaches 0.80"]  # why not
      latency: [3.4us, 'NCCL, hop']
    call_overhead: [20.9us, "step fits, NeMo rows; nccl-tests \\"16 us\\""]
    straggler_spread: [0.0093, "assumed"]

  # The second starts from the first.
  hgx:
    from: dgx
    name: another
"""
STACKS = """\
mpt:
  description: text
  attention_factor: [{default: [0.77, 0.52], h100: [0.44, 0.32]}, "Triton's kernel"]
  launch_cost: [46.3e-6, "Python"]
# the end
"""


def system(field: str, entry: str = "dgx") -> Address:
    return Address(kind="system", entry=entry, field=field)


def stack(field: str) -> Address:
    return Address(kind="stack", entry="mpt", field=field)


@pytest.mark.parametrize(
    ("field", "value", "old", "new"),
    [
        (
            "intra.efficiency",
            0.79951,
            '[0.815, "make fit, 2026-11-21: reports/fit.md; NCCL reaches 0.80"]  # why not',
            '[0.8, "make fit, 2031-02-03: reports/fit.md; NCCL reaches 0.80"]  # why not',
        ),
        (
            "intra.latency",
            4e-6,
            "[3.4us, 'NCCL, hop']",
            '[4us, "make fit, 2031-02-03: reports/fit.md; NCCL, hop"]',
        ),
        (
            "call_overhead",
            18.34e-6,
            '[20.9us, "step fits, NeMo rows; nccl-tests \\"16 us\\""]',
            '[18.3us, "make fit, 2031-02-03: reports/fit.md; nccl-tests \\"16 us\\""]',
        ),
        (
            "straggler_spread",
            0.0120449,
            '[0.0093, "assumed"]',
            '[0.012, "make fit, 2031-02-03: reports/fit.md; assumed"]',
        ),
    ],
)
def test_a_pair_changes_and_the_rest_stays(field: str, value: float, old: str, new: str) -> None:
    assert SYSTEMS.count(old) == 1
    assert with_value(SYSTEMS, system(field), value, DATE) == SYSTEMS.replace(old, new)


def test_numbers_inside_a_pair() -> None:
    changed = with_value(STACKS, stack("attention_factor.h100.backward"), 0.35, DATE)
    changed = with_value(changed, stack("attention_factor.default.forward"), 0.8, DATE)
    changed = with_value(changed, stack("launch_cost"), 51.26e-6, DATE)
    fit = f"make fit, {DATE}: reports/fit.md"
    assert changed == (
        STACKS.replace(
            '[{default: [0.77, 0.52], h100: [0.44, 0.32]}, "Triton\'s kernel"]',
            f'[{{default: [0.8, 0.52], h100: [0.44, 0.35]}}, "{fit}; Triton\'s kernel"]',
        ).replace('[46.3e-6, "Python"]', f'[51.3e-6, "{fit}; Python"]')
    )


def test_writing_the_same_value_twice_is_writing_it_once() -> None:
    once = with_value(SYSTEMS, system("straggler_spread"), 0.01, DATE)
    assert with_value(once, system("straggler_spread"), 0.01, DATE) == once


def test_an_inherited_constant_gets_a_line_of_its_own() -> None:
    changed = with_value(SYSTEMS, system("straggler_spread", "hgx"), 0.005, DATE)
    line = f'    straggler_spread: [0.005, "make fit, {DATE}: reports/fit.md"]\n'
    assert changed == SYSTEMS + line
    again = with_value(STACKS, stack("traffic"), 1.25, DATE)
    assert again == STACKS.replace(
        "# the end", f'  traffic: [1.25, "make fit, {DATE}: reports/fit.md"]\n# the end'
    )


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (system("straggler_spread", "none"), "no entry 'none'"),
        (system("name"), "is not written as [value, source]"),
        (system("intra.efficiency", "hgx"), "write the field there first"),
        (stack("attention_factor.b200.forward"), "no such number in its pair"),
    ],
)
def test_what_cannot_be_written(address: Address, told: str) -> None:
    text = STACKS if address.kind == "stack" else SYSTEMS
    with pytest.raises(CatalogError) as caught:
        with_value(text, address, 1.0, DATE)
    assert told in str(caught.value)


def test_the_real_files_keep_every_comment_and_line(tmp_path: Path) -> None:
    addresses = [
        Address.parse("device a100-sxm-80gb kernel_latency"),
        Address.parse("system dgx-h100 network.efficiency"),
        Address.parse("stack mpt-fsdp-2023 attention_factor.default.backward"),
        Address.parse("stack megatron-deepspeed-vtrain traffic"),  # inherited
    ]
    package = Path(str(files("parsim")))
    for name, _ in KINDS.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((package / name).read_text("utf-8"), "utf-8")
    values = {address: 1.5 * address.catalog_value() for address in addresses}
    assert len(write_values(values, DATE, tmp_path)) == 3
    for name, _ in KINDS.values():
        before = (package / name).read_text("utf-8").splitlines()
        after = (tmp_path / name).read_text("utf-8").splitlines()
        lost = [line for line in before if line not in after]
        gained = [line for line in after if line not in before]
        assert all(DATE in line for line in gained)
        assert len(gained) == (2 if "software" in name else 1)
        assert len(lost) == 1
        assert lost[0].split(":")[0] in [line.split(":")[0] for line in gained]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    name = KINDS["device"][0]
    (tmp_path / name).parent.mkdir(parents=True)
    text = (Path(str(files("parsim"))) / name).read_text("utf-8")
    latency = Address.parse("device a100-sxm-80gb kernel_latency")
    changed = with_value(text, latency, 6.78e-6, DATE)
    (tmp_path / name).write_text(changed, "utf-8")
    catalog = load_catalog([tmp_path / name])
    assert catalog.device("a100-sxm-80gb").kernel_latency == pytest.approx(6.78e-6)
    assert catalog.device("a100-sxm-40gb").kernel_latency == pytest.approx(6.78e-6)
