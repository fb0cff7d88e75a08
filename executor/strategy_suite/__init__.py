"""The command `python -m executor.strategy_suite OUT`: strategies simulated and run side by side.

Scenarios of two models with every strategy go in; `strategies.json`, `strategies.md` and pictures
come out: ages of gradients under the same injected delays, steps and their order, losses on real
text. Strategies take turns in one launch of ranks, so that what else the machine does meets all.
`schedules.py` is a second command: all schedules of one model take turns on two ranks.
"""
