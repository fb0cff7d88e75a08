"""Graphs of operations as torch modules: the twins of models that are no transformers.

In comes a `Graph`; out go its stages, a module a layer, or the reason why it cannot be run.
"""
