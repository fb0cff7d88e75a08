"""Pipelines whose stages have replicas and tensor-parallel degrees of their own, beside equal ones.

The best equal plans come in; unequal ones that fit leave, with what became of all the others.
"""
