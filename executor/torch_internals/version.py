"""Which versions of torch run a plan."""

from __future__ import annotations

import importlib.metadata

from parsim.errors import InputError

MINIMUM = (2, 11)
TESTED = "2.11 and 2.13"
INSTALL = f"pip install 'torch>={MINIMUM[0]}.{MINIMUM[1]}'"


def require_torch() -> str:
    """The version of the installed torch.

    Raises:
        InputError: torch is missing or older than `MINIMUM`.
    """
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            f"running a plan needs torch, which is not installed; install it with: {INSTALL}"
        ) from None
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < MINIMUM:
        raise InputError(
            f"torch {version} is too old to run a plan; allowed: {MINIMUM[0]}.{MINIMUM[1]} or "
            f"newer (tested: {TESTED}); update it with: {INSTALL}"
        )
    return version


TORCH_VERSION = require_torch()

SPLIT_BACKWARD_MIXES_OUTPUTS = tuple(int(x) for x in TORCH_VERSION.split(".")[:2]) < (2, 13)
"""Whether W (`stage_backward_weight`) adds up the gradients of all outputs of one autograd node, as
torch 2.11 does: wrong where several are used. 2.13 keeps them apart; 2.12 was not tried."""
