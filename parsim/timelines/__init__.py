"""What happened when: spans of simulator or executor come in, a `Timeline` or its JSON leaves.

Pictures, tables and comparisons read it and nothing else of a step.
"""
