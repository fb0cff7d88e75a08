"""Moments of a rank's step that can be its highest in eager PyTorch, and its bytes at each.

    pipeline.py     the moments in the order of a rank's actions, as counts of what lives then
    buffers.py      buffers that stand at a moment of a backward
    weights.py      a W: matrices get their gradients one by one
    sharded.py      ZeRO-2 and 3 without a pipeline, whose parameters and gradients travel
    groups.py       the parameters that travel together
    graph_walk.py   a backward through a whole graph, operation by operation
    borders.py      messages between ranks, while they wait
    rank_bytes.py   all of it on one rank, by category

A job, plans, a schedule and what stages keep enter; moments and their bytes leave.
"""
