"""Every private part of torch that the executor stands on, by subject, with a test of each.

In come torch's modules; out go the names that the executor uses of them, and an error that names
what an installed torch lacks. Importing the package is the executor's demand for torch: without
torch, or with one that is too old, the import raises an InputError that says what to install.
"""

from executor.torch_internals.version import TORCH_VERSION

__all__ = ["TORCH_VERSION"]
