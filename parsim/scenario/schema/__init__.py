"""Which keys a scenario file may have, and what kind of value each takes.

Text goes in by `file.py`, blocks with checked values come out; records are built of them beside it.
"""
