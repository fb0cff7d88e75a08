"""A model, or the part of it that one stage holds, as torch modules, and its loss.

In come a transformer's sizes and a range of layers; out go modules whose parameters and products
are those that `parsim.model` counts. Nothing here knows of other ranks, but for the experts'
seam. `adapters.py` freezes weights and puts low-rank maps beside them.
"""
