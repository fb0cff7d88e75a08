"""Simulators, where schedules and costs meet: a job and a plan come in, a `Prediction` leaves.

A plan's step is priced once (`step`); the max-plus recurrence (`recurrence`, tier B), the discrete
events (`events`, tier C), the count of bytes (`memory`) and the drawing (`drawing`) read that one
record. `contention` runs it on shared links (`links`, `traffic`), `lateness` many times with ranks
that differ, `confidence` says how sure the result is, `benchmark` simulates collectives alone.
`simulate` predicts one plan, `program` any step program.
"""

from parsim.sim.prediction import Prediction
from parsim.sim.simulate import simulate

__all__ = ["Prediction", "simulate"]
