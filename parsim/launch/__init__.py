"""Starts the executor: a plan and the nodes of a run come in, processes of torchrun leave.

The ranks are started, watched and ended here, or written out as a script; what they measured
comes back as a file.
"""
