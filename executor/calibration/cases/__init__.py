"""What may be measured: workloads, their kernels as cases, groups of ranks, target plans.

In come scenarios and the catalog's entries; out go cases to time, and samples: a case with its
measured seconds beside those that the simulator's cost functions give it.
"""
