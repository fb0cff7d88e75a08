"""What every stage is to the executor, whatever family its model is of."""

from __future__ import annotations

from torch import nn

from executor.model.mixture.experts import Mixture


class Stage(nn.Module):  # type: ignore[misc]
    """Layers by their number in the whole model, so that parameter names are the whole model's.

    `gives_logits` is False on stages that hand hidden states on.
    """

    layers: nn.ModuleDict
    gives_logits = False
    tied = False

    def tie(self) -> None:
        """Let both ends of a tied table share it, where both are here; most models have none."""

    def tied_parameters(self) -> tuple[nn.Parameter, ...]:
        """The table whose other copy is on another stage; their gradients must be summed."""
        return ()

    def mixtures(self) -> dict[str, Mixture]:
        """The layers' mixtures of experts by their path."""
        return {}
