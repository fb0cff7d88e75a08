"""The test that the private parts of an installed torch are what the executor expects."""

from __future__ import annotations

from functools import lru_cache

from executor.torch_internals import autograd, distributed, kernels, pipelining, profiler
from executor.torch_internals.version import TESTED, TORCH_VERSION
from parsim.errors import InputError

SUBJECTS = (pipelining, profiler, autograd, distributed, kernels)


def self_test() -> list[str]:
    """What this torch lacks of the private parts that the executor stands on; empty is good."""
    return [part for subject in SUBJECTS for part in subject.missing_parts()]


@lru_cache(maxsize=1)
def require_compatible() -> None:
    """Refuse a torch whose private parts are not as expected.

    Raises:
        InputError: naming every part that is missing.
    """
    missing = self_test()
    if missing:
        raise InputError(
            f"torch {TORCH_VERSION} cannot run plans here: {'; '.join(missing)}; "
            f"tested versions: {TESTED}"
        )
