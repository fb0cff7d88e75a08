"""Records every answer of a checkout and compares two recordings, to prove a refactor.

In comes a checkout; `cases.py` lists what is asked of its command line, `worker.py` asks, in a
process of its own, and `compare.py` lays two recordings side by side. Out come a file for each
case, and what differs.
"""
