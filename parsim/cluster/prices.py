"""List prices of devices: a device's id comes in, what an hour of it costs leaves.

One and the same device costs 2 to 4 times as much at one provider as at another, so that a price is
never given without its band. Contracts are not list prices and are left out; so are spot prices.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

ON_DEMAND = "on demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """What a provider asks for one device and hour, US dollars, with its host and interfaces.

    `term` is how long one binds oneself: on demand, reserved for 1 or 3 years, a capacity block.
    """

    device: str
    usd_per_device_hour: float
    term: str
    provider: str
    region: str
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBand:
    """US dollars for a device and hour: the usual price, and the ends of what is asked.

    `basis` says in words where they come from.
    """

    low: float
    usual: float
    high: float
    basis: str


@lru_cache(maxsize=1)
def list_prices() -> tuple[ListPrice, ...]:
    """All prices of the catalog, with date and source."""
    from importlib.resources import files

    text = (files("parsim.cluster") / "catalog" / "prices.csv").read_text(encoding="utf-8")
    return tuple(
        ListPrice(usd_per_device_hour=float(row.pop("usd_per_device_hour")), **row)
        for row in csv.DictReader(text.splitlines())
    )


def price_band(device: str) -> PriceBand | None:
    """The usual price of a device by its id, None where the catalog has none.

    The usual one is the median of what is asked on demand (of all terms where nobody asks it so);
    the band goes from the least to the most of all terms.
    """
    prices = [price for price in list_prices() if price.device == device]
    if not prices:
        return None
    asked = [price.usd_per_device_hour for price in prices]
    on_demand = [price.usd_per_device_hour for price in prices if price.term == ON_DEMAND]
    dates = sorted(price.date for price in prices)
    number = len(on_demand) or len(asked)
    what = "on-demand price" if on_demand else "price"
    words = f"median of {number} {what}s" if number > 1 else f"the only {what}"
    return PriceBand(
        low=min(asked),
        usual=median(on_demand or asked),
        high=max(asked),
        basis=f"{words} of {device}, {dates[0]} to {dates[-1]}",
    )
