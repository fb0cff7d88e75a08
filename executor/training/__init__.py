"""Training of one rank: batches of real text, the trainer of a plan, and its optimizer.

In come a plan, a model's sizes and a corpus; out goes a `Trainer` that takes steps.
"""
