"""Where the cases of a sweep run: here, in processes, or on what joblib reaches (Ray, Dask).

Every way gives the results in the order of the arguments, each as soon as it and those before it
are there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from multiprocessing import get_context
from types import ModuleType
from typing import Any, Final, TypeVar

from parsim.errors import InputError, alternatives, matching, shown


def extra_module(module: str, extra: str, asked: str) -> ModuleType:
    """Import a module of an extra.

    Args:
        module: its dotted name.
        extra: the extra of parsim that installs it.
        asked: what the user asked for, e.g. `--backend ray`.

    Raises:
        InputError: it is not installed; the message has the command that does.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        package = (missing.name or module).partition(".")[0]
        raise InputError(
            f"{asked} needs {package}, which is not installed; install it with: "
            f"pip install '.[{extra}]'"
        ) from None


BACKENDS: Final = ("loky", "ray", "dask")
"""Backends of joblib; Ray and Dask also run on the cluster that RAY_ADDRESS or
DASK_SCHEDULER_ADDRESS names."""

_EXTRAS: Final = {"loky": "sweeps", "ray": "ray", "dask": "dask"}
_ALL: Final = -1

A = TypeVar("A")
B = TypeVar("B")


def read_backend(text: str) -> str:
    """The backend of `--backend`, which is installed.

    Raises:
        InputError: an unknown one, or a package of it that is missing.
    """
    name = matching(text, BACKENDS)
    if name is None:
        raise InputError(f"--backend '{shown(text)}' is unknown{alternatives(text, BACKENDS)}")
    for module in _modules(name):
        extra_module(module, _EXTRAS[name], f"--backend {name}")
    return name


def _modules(backend: str) -> tuple[str, ...]:
    more = {"loky": (), "ray": ("ray.util.joblib",), "dask": ("distributed",)}
    return ("joblib", *more[backend])


def in_order(
    work: Callable[[A], B], arguments: Sequence[A], *, jobs: int, backend: str | None
) -> Generator[B, None, None]:
    """The results of a function, in the order of its arguments.

    Args:
        work: a function of a module, so that another process can import it.
        arguments: what it is called with, one by one.
        jobs: how many at a time; 0 is all cores, or all of the cluster that the backend reaches.
        backend: one of `BACKENDS`; None uses no joblib: processes, or this one for one job.
    """
    number = min(jobs or os.cpu_count() or 1, len(arguments))
    if arguments and backend is not None:
        yield from _by_joblib(work, arguments, jobs or _ALL, backend)
    elif number > 1:
        yield from _by_processes(work, arguments, number)
    else:
        yield from map(work, arguments)


def _by_processes(
    work: Callable[[A], B], arguments: Sequence[A], jobs: int
) -> Generator[B, None, None]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(work, arguments)
        except (GeneratorExit, KeyboardInterrupt):
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _by_joblib(
    work: Callable[[A], B], arguments: Sequence[A], jobs: int, backend: str
) -> Generator[B, None, None]:
    joblib: Any = extra_module("joblib", _EXTRAS[backend], f"--backend {backend}")
    with _cluster(backend, jobs), joblib.parallel_config(backend=backend, n_jobs=jobs):
        calls = [joblib.delayed(work)(argument) for argument in arguments]
        # Ray's backend gives lists alone: the results come by some, so that few are lost by Ctrl-C
        size = 4 * joblib.effective_n_jobs(jobs) if backend == "ray" else len(calls)
        kind = "list" if backend == "ray" else "generator"
        with joblib.Parallel(return_as=kind, batch_size=1) as parallel:
            for start in range(0, len(calls), size):
                yield from parallel(calls[start : start + size])


def _cluster(backend: str, jobs: int) -> AbstractContextManager[Any]:
    """What must be there while joblib uses the backend: the cluster named, else this machine."""
    if backend == "ray":
        ray: Any = extra_module("ray", "ray", "--backend ray")
        extra_module("ray.util.joblib", "ray", "--backend ray").register_ray()
        context: AbstractContextManager[Any] = ray.init(
            ignore_reinit_error=True, log_to_driver=False, logging_level="warning"
        )
        return context
    if backend == "dask":
        distributed: Any = extra_module("distributed", "dask", "--backend dask")
        named = "DASK_SCHEDULER_ADDRESS" in os.environ
        here = {"threads_per_worker": 1, "n_workers": None if jobs == _ALL else jobs}
        client: AbstractContextManager[Any] = distributed.Client(**({} if named else here))
        return client
    return nullcontext()
