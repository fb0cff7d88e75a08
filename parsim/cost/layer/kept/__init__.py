"""What layers keep between forward and backward, what a plan makes again, what it moves to hosts.

A layer and a plan's table enter; bytes and the modules they belong to leave.
"""
