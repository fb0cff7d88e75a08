"""How sure a prediction is: a step's parts come in, an 80 % interval and its basis leave."""
