"""Predictions beside measurements: tables of measured runs come in, rows with their errors leave.

`validate` walks whole tables of steps; the rooms `step`, `kernel` and `collective` read one row of
their kind and make it predictable. Shipped tables are in `data/`, and what they say of predictions
in `evidence.json` and `left_out.json`, and of networks beside them, which `make reports` writes.
"""
