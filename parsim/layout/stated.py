"""What a strategy states of a layout: by names of dimensions, by signatures, or nothing."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.layout.candidates import OnMesh, Options, Stated, stated_options
from parsim.layout.names import laid_by_names


def options_of(
    options: Options, names: Mapping[str, str] | None, stated: Stated | None
) -> dict[str, tuple[OnMesh, ...]]:
    """The signatures that every operation may have; a layout by names leaves one of each.

    Raises:
        PlanError: what is stated cannot be.
    """
    if names is not None:
        return laid_by_names(options, names)
    return stated_options(options, stated or {})
