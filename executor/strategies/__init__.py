"""Data-parallel strategies on real ranks: servers, peers, local steps.

A plan with a strategy, a model and batches come in; trained weights, losses and, where nobody
waits, the order in which gradients were applied leave. Every worker holds the whole model. One file
a strategy, and one entry in `RUNNERS` (`train.py`).
"""
