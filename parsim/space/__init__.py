"""What a space of plans is made of: its axes, one record each, and the presets that hold them.

A job comes in, values of axes leave; who searches a space, describes it or reads it from a file
asks the same records (`axes.py`); `words.py` says them.
"""
