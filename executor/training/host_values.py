"""Values that are updated in the host's memory, in place of those of a device (ZeRO-Offload).

    device   | gradients --+                            +--> values of the next forward
    host     |             +-> update of fp32 copies  --+

The host waits for all gradients of a step, updates with the cores that its ranks leave idle, and
goes on: what comes back is ahead of the next forward in the device's queue. Left out: copies of one
part of the gradients beside the backward of another, and of values beside the update.

Source: Ren et al. 2021, ZeRO-Offload (arXiv:2101.06840), section 4.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from executor.devices.accelerator import accelerator
from parsim.plan import Plan


class HostLink:
    """Copies of a rank's values between its device and the memory of its host."""

    def __init__(self, device: torch.device) -> None:
        self._asked = accelerator(device)
        self._copier = self._asked.copier()

    def leave(self, values: Tensor) -> Tensor:
        """Begin to copy values to the host, which must live until `wait`."""
        copied: Tensor = self._copier.leave(values)[0]
        return copied

    def wait(self) -> None:
        """Wait until all copies are over."""
        self._asked.synchronize()


def host_link(plan: Plan, device: torch.device) -> HostLink | None:
    """What a plan with `optimizer_offload` copies with; None where the host is the device."""
    return HostLink(device) if plan.optimizer_offload and accelerator(device).queued else None


class HostCopy:
    """An fp32 copy of values in the host's memory: `values`, which an optimizer updates."""

    def __init__(self, there: Tensor, link: HostLink) -> None:
        self._link = link
        self._rounded = link.leave(there)  # what goes back, as it is there
        link.wait()
        self.values = nn.Parameter(self._rounded.to(torch.float32))
        self._coming: Tensor | None = None

    def take(self, gradient: Tensor | None) -> None:
        """Begin to copy a gradient."""
        self._coming = None if gradient is None else self._link.leave(gradient)

    def arrive(self) -> None:
        """Give the values their gradient, when the link has been waited for."""
        coming, self._coming = self._coming, None
        self.values.grad = None if coming is None else coming.to(torch.float32)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def put(self, there: Tensor) -> None:
        """Begin to copy the updated values back, rounded to what is there."""
        self.values.grad = None
        if self._rounded.dtype != torch.float32:  # else it is the very memory of the values
            self._rounded.copy_(self.values)
        there.copy_(self._rounded, non_blocking=True)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def reload(self, there: Tensor) -> None:
        """Go on from what is there now."""
        loaded = self._link.leave(there)
        self._link.wait()
        self.values.copy_(loaded)
