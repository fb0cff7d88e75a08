"""Constants by address: what an entry inherits, and jobs with other values."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from parsim.cost.job import Job
from parsim.errors import CatalogError
from parsim.fitting.constants.address import Address, reaches, with_values
from parsim.validation.step.case import build_case
from parsim.validation.step.row_reader import parse_row
from parsim.validation.validate import read_table
from tests.parsim.validation.conftest import shipped

HBM = Address.parse("device a100-sxm-80gb memory_efficiency")
ATTENTION = Address.parse("device a100-sxm-80gb attention_forward_efficiency")
NETWORK = Address.parse("system dgx-a100 network.efficiency")
TRAFFIC = Address.parse("stack megatron-2021 traffic")
SCORES = Address.parse("stack megatron-2021 scores_traffic")
FLASH = Address.parse("stack mpt-fsdp-2023 attention_factor.h100.backward")
OVERLAP = Address.parse("stack nemo overlap")


def job(table: str, **cells: str) -> Job:
    """The first plain row of a table, with these cells."""
    rows = (row for row in read_table(shipped(table)) if row["precision"] != "fp8")
    row = next(row for row in rows if row["cp"] in ("", "1"))
    return build_case(parse_row({**row, **cells})).job


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("device a100-sxm-80gb", "must be 'KIND ENTRY FIELD'"),
        ("gpu a100-sxm-80gb memory", "with a kind of device, system, stack"),
        ("device a100-80gb memory_efficiency", "no device 'a100-80gb'"),
        ("device a100-sxm-80gb hbm_efficiency", "no such number; it is None"),
        ("system dgx-a100 intra.fabric", "no such number; it is 'nvswitch'"),
        ("stack nemo fused_attention", "no such number; it is True"),
        ("stack nemo attention_factor.default.sideways", "no such number; it is None"),
    ],
)
def test_addresses_of_nothing(text: str, told: str) -> None:
    with pytest.raises(CatalogError, match="constant"):
        Address.parse(text)
    with pytest.raises(CatalogError) as caught:
        Address.parse(text)
    assert told in str(caught.value)


def test_an_address_reads_as_it_is_written() -> None:
    assert str(FLASH) == "stack mpt-fsdp-2023 attention_factor.h100.backward"
    assert 0.1 < FLASH.catalog_value() < 2.0


@pytest.mark.parametrize(
    ("address", "entry", "expected"),
    [
        (HBM, "a100-sxm-80gb", True),
        (HBM, "a100-sxm-40gb", True),  # inherits it
        (ATTENTION, "v100-sxm-32gb", False),  # its parent writes its own
        (HBM, "h100-sxm-80gb", False),
        (TRAFFIC, "megatron-2022", True),
        (TRAFFIC, "megatron-deepspeed-vtrain", True),
        (TRAFFIC, "deepspeed-zero3", False),  # a stack between writes its own
        (SCORES, "deepspeed-zero3", True),  # three steps up
        (TRAFFIC, "generic", False),  # above it
        (TRAFFIC, "nemo", False),
    ],
)
def test_what_a_constant_reaches(address: Address, entry: str, expected: bool) -> None:
    assert reaches(address, entry, [address]) is expected


def test_another_constant_on_the_way_up_takes_over() -> None:
    nearer = Address.parse("device a100-sxm-40gb memory_efficiency")
    assert reaches(HBM, "a100-sxm-40gb", [HBM])
    assert not reaches(HBM, "a100-sxm-40gb", [HBM, nearer])
    assert reaches(nearer, "a100-sxm-40gb", [HBM, nearer])


def test_values_go_where_they_belong() -> None:
    values: Mapping[Address, float] = {HBM: 0.5, NETWORK: 0.25, TRAFFIC: 3.0, FLASH: 0.125}
    changed = with_values(job("megatron_sc21_table1"), values)
    assert changed.device.memory_efficiency == 0.5
    assert changed.system.network is not None
    assert changed.system.network.efficiency == 0.25
    assert changed.software.traffic == 3.0
    hopper = with_values(job("llm_foundry", gpu_type="h100-sxm-80gb"), values)
    assert hopper.software.attention_speed("h100-sxm-80gb")[1] == 0.125
    assert (
        hopper.software.attention_speed("a100")[1]
        == job("llm_foundry").software.attention_speed("a100")[1]
    )
    assert hopper.device == job("llm_foundry", gpu_type="h100-sxm-80gb").device


def test_the_catalogs_values_change_nothing() -> None:
    table = job("megatron_sc21_table1")
    addresses = (HBM, NETWORK, TRAFFIC, FLASH, OVERLAP)
    assert with_values(table, {address: address.catalog_value() for address in addresses}) == table


def test_what_a_row_says_of_a_constant_stays_said() -> None:
    """An eager run moves more than the stack."""
    traffic = Address.parse("stack torchtitan traffic")
    eager = job("torchtitan_public", torch_compile="no")
    ratio = eager.software.traffic / traffic.catalog_value()
    assert ratio > 1.1
    changed = with_values(eager, {traffic: 2.0})
    assert changed.software.traffic == pytest.approx(2.0 * ratio)
