"""Bytes on each rank at its peak.

A job, a table of plans, the costs of their layers and a schedule enter; bytes by category on each
pipeline rank leave, with the micro-batches that are in flight at that moment. Ranks that hold an
embedding or a head alone have no layer's buffers.
"""
