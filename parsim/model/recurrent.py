"""A recurrent layer as an operator: gates that see the input and their own last state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """One layer of an LSTM (4 gates) or GRU (3) over `tokens` steps, in one direction or in two.

    Of each direction: weights (gates x hidden, inputs) and (gates x hidden, hidden), with `bias`
    two of gates x hidden, as cuDNN and PyTorch have them. The inputs' product is taken of all steps
    at once; the states' product of one step after another.

    Source: Hochreiter and Schmidhuber 1997; `torch.nn.LSTM`.
    """

    name: str
    tokens: int
    inputs: int
    hidden: int
    gates: int = 4
    directions: int = 1
    bias: bool = True
    keeps_input: bool = True

    split_parameters = 0

    @property
    def repeated_parameters(self) -> int:
        """Weights and biases of all directions."""
        biases = 2 * self.bias
        return self.directions * self.gates * self.hidden * (self.inputs + self.hidden + biases)

    def flops(self, batch: int) -> int:
        """Forward FLOPs of a batch: 2 per weight and token."""
        weights = self.directions * self.gates * self.hidden * (self.inputs + self.hidden)
        return 2 * batch * self.tokens * weights
