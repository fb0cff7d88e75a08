"""Tier B: priced actions come in, their finish times by the max-plus recurrence leave."""
