"""Seconds of collectives and messages.

A system, the kind of a collective, bytes and the placement of groups of ranks enter; seconds leave,
with the algorithm that NCCL (or a plugin, or gloo) takes and how sure its figure is.
"""
