"""Ranks that differ: a jitter block comes in, the distribution of many steps' times leaves."""
