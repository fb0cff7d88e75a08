"""What ranks of the data axes exchange: gradients, parameters, and the update between them.

A job and plans enter; their communicators (`DataParallel`), messages, buckets, and the seconds of
reductions, gathers and updates, by stage and plan, leave.
"""
