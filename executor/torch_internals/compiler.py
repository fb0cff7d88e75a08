"""Settings of torch.compile that are not public, and what its backend needs of the machine."""

from __future__ import annotations

import torch


def compile_strictly() -> None:
    """Let torch.compile raise where it would go back to eager, and leave DDP's buckets alone.

    A layer that is compiled too often is an error; torch would run it eagerly in silence. DDP's
    optimizer splits graphs at buckets, of which a layer's graph is smaller anyway.
    """
    config = torch._dynamo.config
    config.optimize_ddp = False
    for name in ("fail_on_recompile_limit_hit", "fail_on_cache_limit_hit"):
        if hasattr(config, name):
            setattr(config, name, True)
            return


def missing_compiler(device: torch.device) -> str | None:
    """What inductor lacks to compile for a device, or None."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return None if has_triton() else "Triton"
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception:  # of a class that has moved between versions
        return "a C++ compiler (g++)"
    return None
