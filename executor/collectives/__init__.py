"""The command `python -m executor.collectives`: times collectives of groups of ranks.

In come kinds, sizes, groups and a time limit; out goes a document with a row of measured seconds
for each, which `parsim collectives --measure` lays beside the prediction.
"""
