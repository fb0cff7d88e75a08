"""What is measured of a trainer: seconds, memory, timelines, expert load, exactness.

In come a trainer and batches; out go robust figures of steps, `parsim.timelines` whose spans are
named as the simulator's, and how far gradients are from those of one process.
"""
