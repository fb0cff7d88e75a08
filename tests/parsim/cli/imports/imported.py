"""Systems that `parsim catalog import` makes of the samples."""

from __future__ import annotations

from tests.commands import ROOT

SAMPLES = ROOT / "tests" / "parsim" / "cluster" / "importers" / "samples"
H100 = ("--device", "h100-sxm-80gb")
