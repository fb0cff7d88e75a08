"""Commands that choose: search, why, sweep, and what carries a plan to other frameworks."""
