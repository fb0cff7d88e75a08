"""Cutting a model into stages: a graph of layers with costs comes in, the best partition leaves."""
