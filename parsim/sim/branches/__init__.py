"""Branches of a model on devices apart: what each path costs, and which device it goes to.

A plan whose workers hold a model together comes in, with the evaluated plan of whole models that
its prices are from; the device of every path and the order in which they run leave, and the seconds
and bytes that the strategy's program names.
"""
