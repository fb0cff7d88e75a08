"""Layouts of a model on a mesh of devices: what each costs, the cheapest, its seconds and bytes.

A plan whose workers hold a model together by a layout comes in, with the evaluated plan of whole
models that its prices are from; the signatures of all operations leave, and the seconds and bytes
that the strategy's program names.
"""
