"""The command that benchmarks collectives.

    sweep_request.py    what its options ask for: kinds, sizes, what is forced
    group_request.py    the system and the groups of ranks that its options name
    collectives.py      predictions like nccl-tests', drawn, several at once, beside measured ones

A system of the catalog, a calibrated file or this machine enters; a table, a picture or JSON
leaves.
"""
