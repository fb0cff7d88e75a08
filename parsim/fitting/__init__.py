"""The workshop: measured rows come in, constants of the catalog and figures of intervals leave.

Nothing in the product imports it; `make fit`, `make fit-kernels`, `make fit-collectives`,
`make ablation` and `make reports` run it.
"""
