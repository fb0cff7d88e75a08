"""What this machine offers to ranks: its devices, their names, and how a process uses one."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parsim.cluster.device_names import device_named
from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError, InputError, shown
from parsim.units import GIB

if TYPE_CHECKING:
    import torch

SHARING_NCCL = (2, 30)
"""First NCCL in which several ranks may use one GPU (experimental, by environment variable)."""

SHARING_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's `mallopt` (malloc.h): free bytes at the top that go back to the system, and
the size from which an allocation is mapped by itself and goes back as a whole."""

KEPT_BYTES = GIB
"""Memory below this many bytes stays with a CPU rank that has freed it."""

MOST_DRAWING = 8
"""Threads of a rank that draw first weights; each has a matrix of the model in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """What this machine offers to the ranks on it.

    `kind` is torch's device type. `count` is the number of GPUs, or of CPU cores this process may
    use. `shareable` says whether several ranks may use one device. The other ones of `nodes` are
    taken to be alike.
    """

    kind: str
    backend: str
    count: int
    names: tuple[str, ...]
    shareable: bool
    nodes: int = 1

    def __str__(self) -> str:
        kinds = ", ".join(sorted(set(self.names)))
        nodes = f"{self.nodes} nodes of " if self.nodes > 1 else ""
        return f"{nodes}{self.count} x {self.kind} ({kinds}), backend {self.backend}"


def probe(kind: str | None = None, *, nodes: int = 1) -> DeviceReport:
    """Look at this machine, one of `nodes`: its GPUs if there are any, else (or if asked) the CPU.

    Raises:
        InputError: an unknown kind, or "cuda" where torch sees no GPU.
    """
    import torch

    from executor.devices.accelerator import gpu_names

    if kind not in (None, "cpu", "cuda"):
        raise InputError(f"device={kind!r} is unknown; allowed: cpu, cuda")
    names = gpu_names()
    if kind == "cuda" and not names:
        raise InputError(
            f"device='cuda', but torch {torch.__version__} sees no GPU; use device='cpu', or "
            f"install a torch built for CUDA"
        )
    return _cores(nodes) if kind == "cpu" or not names else _gpus(names, nodes)


def _cores(nodes: int) -> DeviceReport:
    """The cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return DeviceReport(
        kind="cpu",
        backend="gloo",
        count=cores or 1,
        names=("cpu",),
        shareable=True,
        nodes=nodes,
    )


def _gpus(names: tuple[str, ...], nodes: int) -> DeviceReport:
    """The GPUs of these names."""
    # NCCL before 2.30 ends with "Duplicate GPU detected" when two ranks use one GPU
    able = nccl_version()[:2] >= SHARING_NCCL
    return DeviceReport(
        kind="cuda",
        backend="nccl",
        count=len(names),
        names=names,
        shareable=able and os.environ.get(SHARING_VARIABLE) == "1",
        nodes=nodes,
    )


def nccl_version() -> tuple[int, ...]:
    """The version of the NCCL that is loaded; torch's own figure is that of its build.

    Another library may be loaded before torch's (LD_PRELOAD), so this process is asked first and
    then the library that goes by NCCL's name. `ncclGetVersion` gives 22809 for 2.28.9; where
    nobody has it, torch's figure counts.
    """
    from executor.devices.accelerator import built_nccl

    number = ctypes.c_int()
    for library in (None, "libnccl.so.2"):
        try:
            ctypes.CDLL(library).ncclGetVersion(ctypes.byref(number))
        except (OSError, AttributeError):
            continue
        return number.value // 10_000, number.value // 100 % 100, number.value % 100
    return built_nccl()


def rank_device(report: DeviceReport) -> torch.device:
    """The device of this rank, under torchrun; CPU ranks compute with one thread."""
    import torch

    from executor.devices.accelerator import accelerator

    if report.kind == "cpu":
        use_one_thread()
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % report.count)
    accelerator(device).choose()
    return device


def drawing_threads(device: torch.device) -> int:
    """Threads that draw a rank's first weights: a GPU's ranks leave cores idle, a CPU's none."""
    return 1 if device.type != "cuda" else min(MOST_DRAWING, idle_cores())


def idle_cores() -> int:
    """Cores of a rank that computes on a GPU: its part of all there are."""
    return max((os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)


@contextmanager
def on_idle_cores() -> Iterator[None]:
    """The block in which the host computes with all cores of a rank that computes on a GPU."""
    import torch

    usual = torch.get_num_threads()
    torch.set_num_threads(idle_cores())
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def use_one_thread() -> None:
    """Let this process compute on the CPU as a rank does: with one thread, on memory that stays.

    glibc hands the memory of large tensors back to the system when they are freed and takes it
    again page by page for the next ones: a backward of two layers of width 768 takes 51 ms with
    that and 40 without. `mallopt` exists in glibc alone; elsewhere nothing is changed.
    """
    import torch

    torch.set_num_threads(1)
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(TRIM_THRESHOLD, KEPT_BYTES)
        set_option(MMAP_THRESHOLD, KEPT_BYTES)


def use_deterministic() -> None:
    """Let torch take only kernels that give the same bits every time, and refuse others.

    cuBLAS needs a workspace of its own for that, which it reads from the environment when it is
    first used. New memory is not filled, which torch would do for that too: nothing here reads it.
    """
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def hardware_name(report: DeviceReport) -> str:
    """The GPU's or the processor's model."""
    if report.kind == "cuda":
        return report.names[0]
    listed = Path("/proc/cpuinfo")
    text = listed.read_text(encoding="utf-8") if listed.exists() else ""
    line = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return f"one core of {line[1].strip() if line else platform.machine()}"


def base_device(report: DeviceReport, stated: str | None = None) -> str:
    """Id of the catalog's device that this machine's are, or of the `stated` one in their place.

    Raises:
        CatalogError: the catalog has no GPU of this name; the nearest ones.
        InputError: one is stated for a CPU, or a CPU for a GPU.
    """
    if stated is not None:
        if (report.kind == "cpu") != (load_catalog().device(stated).id == "cpu"):
            raise InputError(
                f"--base {shown(stated)} cannot stand in for {report.names[0]}; give a GPU of "
                f"`parsim catalog devices` for a GPU, and leave --base out for a CPU"
            )
        return stated
    if report.kind == "cpu":
        return "cpu"
    try:
        return device_named(report.names[0])
    except CatalogError as reason:
        raise CatalogError(
            f"{reason}; to measure it all the same, name the device whose figures stand in for "
            f"what is not measured, such as memory and network: --base ID"
        ) from None
