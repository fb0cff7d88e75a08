"""The program and the prices of each family of strategies.

The workers of a plan come in; a program with its seconds, bytes and what it is of leave.
"""
