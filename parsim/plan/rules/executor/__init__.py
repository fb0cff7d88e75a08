"""Which legal plans parsim's own executor can run, asked where the software is that executor.

A plan and a model enter, the first reason against them leaves, or None. So search, simulate, check
and run agree: the executor asks the same rules again, with what only it knows beside them: the
backend, the ranks of this machine, a lowered schedule.
"""
