"""Saves the training state of all ranks and resumes from it.

In come a trainer and a folder; out go whole checkpoints with checksums and a record of what was
trained, and the losses of the steps before where training resumes.
"""
