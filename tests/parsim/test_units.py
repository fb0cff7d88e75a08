"""Text to SI floats and back: the units that are taken, and the traps that are refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import UnitError
from parsim.units import (
    count_of,
    counted,
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    format_span,
    parse_count,
    parse_quantity,
    percent,
    whole_number,
    written_rate,
    written_time,
)

SIZES = "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80GiB", "bytes", 80 * 2**30),
        ("80 GB", "bytes", 80e9),
        ("1.5 TiB", "bytes", 1.5 * 2**40),
        ("64KiB", "bytes", 65536),
        ("1e3 MiB", "bytes", 1000 * 2**20),
        ("0B", "bytes", 0),
        ("900GB/s", "bandwidth", 900e9),
        ("2 TiB/s", "bandwidth", 2 * 2**40),
        ("400Gb/s", "bandwidth", 50e9),
        ("400 Gbps", "bandwidth", 50e9),
        ("8bps", "bandwidth", 1),
        ("5us", "time", 5e-6),
        ("1.25 s", "time", 1.25),
        ("5e-1 ms", "time", 0.5e-3),
        (".1ns", "time", 0.1e-9),
        ("312 TFLOP/s", "flops", 312e12),
        ("1.2EFLOP/s", "flops", 1.2e18),
        ("7PFLOPS", "flops", 7e15),
    ],
)
def test_text_becomes_si(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension) == value


def test_bits_and_bytes_are_told_apart() -> None:
    assert parse_quantity("400GB/s", "bandwidth") == 8 * parse_quantity("400Gb/s", "bandwidth")


@pytest.mark.parametrize(
    ("text", "dimension", "fixed"),
    [
        ("80", "bytes", "80GiB"),
        ("9e11", "bandwidth", "9e11B/s"),
        ("900", "bandwidth", "900GB/s"),
        ("5", "time", "5us"),
        ("312", "flops", "312TFLOP/s"),
    ],
)
def test_a_bare_number_is_refused(text: str, dimension: str, fixed: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, dimension)
    assert str(caught.value) == f"bare number {text}; write it with a unit, e.g. '{fixed}'"


def test_a_unit_of_another_dimension_is_refused() -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity("900GB/s", "bytes")
    assert str(caught.value) == (
        f"'900GB/s' is not a size: allowed units are {SIZES}; e.g. '80GiB'"
    )


@pytest.mark.parametrize(
    ("text", "dimension", "meant"),
    [
        ("80gib", "bytes", "'GiB'"),
        ("80mB", "bytes", "'MB'"),
        ("80Gb", "bytes", "'GB'"),
        ("900gb/s", "bandwidth", "'GB/s' or 'Gb/s'"),
        ("5S", "time", "'s'"),
        ("312 tflops", "flops", "'TFLOPS'"),
    ],
)
def test_the_wrong_case_is_refused_with_what_was_meant(
    text: str, dimension: str, meant: str
) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, dimension)
    assert f"(did you mean {meant}?)" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("3 m", "time"),
        ("80 G", "bytes"),
        ("1,5GiB", "bytes"),
        ("-3GiB", "bytes"),
        ("1e400 B", "bytes"),
        ("1e999999999 B", "bytes"),
        ("80GiB/s", "bytes"),
        ("80GiB", "bandwidth"),
        ("5 bananas", "time"),
        ("5 us us", "time"),
        ("us", "time"),
        ("inf s", "time"),
        ("nan s", "time"),
        ("", "time"),
    ],
)
def test_nonsense_is_refused_by_value(text: str, dimension: str) -> None:
    with pytest.raises(UnitError, match=r"'.*' is not a ") as caught:
        parse_quantity(text, dimension)
    assert str(caught.value).startswith(f"'{text}'")


@given(st.text(max_size=12), st.sampled_from(["bytes", "bandwidth", "time", "flops"]))
def test_no_text_raises_anything_but_a_unit_error(text: str, dimension: str) -> None:
    try:
        value = parse_quantity(text, dimension)
    except UnitError:
        return
    assert math.isfinite(value)
    assert value >= 0


@given(
    st.integers(0, 10**6),
    st.sampled_from([("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40)]),
)
def test_whole_binary_sizes_are_exact(count: int, unit: tuple[str, int]) -> None:
    assert parse_quantity(f"{count}{unit[0]}", "bytes") == count * unit[1]


@given(st.floats(1e-6, 1e6), st.sampled_from(["ns", "us", "ms", "s"]))
def test_an_exponent_means_the_same_number(number: float, unit: str) -> None:
    plain = parse_quantity(f"{number:.20f}{unit}", "time")
    assert parse_quantity(f"{number:.16e}{unit}", "time") == pytest.approx(plain, rel=1e-12)


@given(st.floats(0, 1e15))
def test_a_formatted_size_reads_back(amount: float) -> None:
    # Half of the last digit shown: 0.05 of GiB above 0.1 GiB, of MiB above 0.1 MiB, 0.5 B below.
    step = 2**30 if amount >= 2**30 / 10 else 2**20 if amount >= 2**20 / 10 else 10
    assert parse_quantity(format_bytes(amount), "bytes") == pytest.approx(amount, abs=0.051 * step)


@given(st.floats(0, 1e6))
def test_a_formatted_duration_reads_back(duration: float) -> None:
    step = 1.0 if duration >= 1 else 1e-3 if duration >= 1e-3 else 1e-6
    read = parse_quantity(format_seconds(duration), "time")
    assert read == pytest.approx(duration, abs=0.00051 * step)


@given(st.floats(0, 1e14))
def test_a_formatted_rate_reads_back(rate: float) -> None:
    step = 1e9 if rate >= 1e9 else 1e6
    read = parse_quantity(format_rate(rate), "bandwidth")
    assert read == pytest.approx(rate, abs=0.051 * step)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (format_bytes(80 * 2**30), "80.0 GiB"),
        (format_bytes(3 * 2**20), "3.0 MiB"),
        (format_bytes(512), "512 B"),
        (format_seconds(12.3456), "12.346 s"),
        (format_seconds(0.0123456), "12.346 ms"),
        (format_seconds(5e-6), "5.000 us"),
        (format_seconds(0.0), "0 s"),
        (format_seconds(-1e-17), "0 s"),  # what rounding leaves of a difference
        (format_seconds(0.6e-9), "0.001 us"),
        (format_rate(300e9), "300.0 GB/s"),
        (format_rate(12.5e6), "0.0125 GB/s"),
    ],
)
def test_written_forms(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("15min", 900.0), ("1.5h", 5400.0), ("30 d", 2592e3)]
)
def test_spans_of_time(text: str, seconds: float) -> None:
    """`min` is minutes and no thousandth of an inch."""
    assert parse_quantity(text, "span") == seconds


@pytest.mark.parametrize(
    ("text", "count"), [("300B", 3e11), ("1.4T", 1.4e12), ("300e9", 3e11), ("1000", 1e3)]
)
def test_counts(text: str, count: float) -> None:
    assert parse_count(text) == count
    assert parse_count(format_count(count)) == count


@pytest.mark.parametrize("text", ["", "B", "-3B", "3 X", "1e99", "0", "nan", "1,5T"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UnitError, match="tokens"):
        parse_count(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5.0, "5 s"), (600.0, "10 min"), (86400.0, "24 h"), (34 * 86400.0, "34 days")],
)
def test_long_durations(seconds: float, text: str) -> None:
    assert format_span(seconds) == text


def test_what_a_catalog_file_has_is_read_back() -> None:
    assert (written_rate(12.5e9), written_time(4.2e-6)) == ("12.5GB/s", "4.2us")
    assert parse_quantity(written_rate(12.5e9), "bandwidth") == 12.5e9
    assert parse_quantity(written_time(4.2e-6), "time") == 4.2e-6


@pytest.mark.parametrize("text", ["", "-1", "1.0", "1e3", "\u0663", " 7", "9" * 5000])
def test_a_whole_number_is_a_few_digits(text: str) -> None:
    assert whole_number(text) is None
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        count_of(text)


def test_whole_numbers() -> None:
    assert (whole_number("0"), whole_number("0017"), count_of("17")) == (0, 17, 17)
    with pytest.raises(ValueError, match="'0' must be a whole number"):
        count_of("0")


def test_percentages() -> None:
    assert percent(0.1234) == "12.3 %"
    assert percent(0.1234, signed=True) == "+12.3 %"
    assert percent(-0.1234, signed=True) == "-12.3 %"
    assert percent(0.1234, digits=0) == "12 %"
    assert percent(-0.1234, signed=True, digits=2) == "-12.34 %"
    assert percent(None) == percent(None, signed=True) == "-"


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1270, "1,270 runs")]
)
def test_one_thing_is_no_plural(number: int, words: str) -> None:
    assert counted(number, "run") == words
