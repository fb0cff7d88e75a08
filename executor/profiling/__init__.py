"""Any module as a model file: a function that builds it and an input's sizes enter, a graph leaves.

`torch.export` gives the operations; those that parsim knows are written as such, others with the
seconds that they take on this machine. A module that cannot be exported is timed by hooks, one leaf
module after another.
"""
