"""Layouts: which part of every tensor each device of a mesh holds, and what changes that.

A graph with a mesh and what a user says of it (dimensions on axes, or signatures) comes in; for
every operation the signatures that it may have, and once they are chosen the graph of one device
with its changes of layout, leave.
"""
