"""Measured runs of models that are not transformers: a row of text enters, a prediction leaves.

The schema of their tables (samples a second, strategies) is apart from that of transformers' runs,
which states sizes and degrees; `parsim validate` tells the two apart by their headers.
"""
