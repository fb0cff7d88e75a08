"""Cuts of a model into stages: a plan's layers come in, cuts that balance its stages leave.

single_layers.py   every layer as a stage of its own
items.py           what a cut shares out, priced and rounded for many plans at once
candidates.py      the cuts that are worth trying
balance.py         the one whose busiest rank has the least to do
cut_walk.py        the exact walk that proves it
"""

from __future__ import annotations

from parsim.cost.step.cuts.candidates import (
    CUTS_KEPT,
    PlacedStages,
    balanced_cuts,
    cut_words,
    short_weights,
)
from parsim.cost.step.cuts.items import THIRDS, Items, Shares
from parsim.cost.step.cuts.single_layers import SingleLayers, single_layers, update_seconds

__all__ = [
    "CUTS_KEPT",
    "THIRDS",
    "Items",
    "PlacedStages",
    "Shares",
    "SingleLayers",
    "balanced_cuts",
    "cut_words",
    "short_weights",
    "single_layers",
    "update_seconds",
]
