"""Times the chosen cases on this machine: kernels, whole layers, links.

In come a choice and seconds; out go samples, and notes on what was left out.
"""
