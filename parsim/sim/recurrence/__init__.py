"""Finish times by recurrence (tier B): priced actions come in, when each of them ends leaves."""
