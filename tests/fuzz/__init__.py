"""Mutates every file and option that a user can hand over, and watches what parsim does with it.

In comes a seed; every input follows from (seed, its number) alone, so that any of them can be run
again. Out come the inputs that ended in a bug, a traceback, text that a terminal obeys, more than
so many seconds or bytes.
"""
