"""Simulators: the only place where schedules and costs meet.

Tier B (`maxplus`, `tail`, `evaluate`) is the max-plus recurrence over arrays of plans; tier C
(`events`) is simpy. `simulate` predicts one plan, `monte_carlo` steps of it whose ranks differ
(`draws`, `replicas`).
"""

from parsim.sim.prediction import Prediction
from parsim.sim.simulate import simulate

__all__ = ["Prediction", "simulate"]
