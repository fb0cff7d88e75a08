"""`parsim run` of a pipeline whose stages are run task by task: of their own replicas, or no flush.

In come a scenario and this rank's device; out go the times of batches, losses, peaks by stage, and
a check against one process.
"""
