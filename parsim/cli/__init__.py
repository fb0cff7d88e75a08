"""The command line: arguments come in, an exit code and text or JSON leave.

One file a command; each loads what it needs inside the command, so that `parsim --help` loads
none of numpy, simpy, pydantic, matplotlib and torch.
"""
