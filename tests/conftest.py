"""What all tests share: how hypothesis draws its examples."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run and on every machine; no test is judged by the clock.
settings.register_profile("parsim", derandomize=True, deadline=None)
settings.load_profile("parsim")
