"""Which strategy when: a scenario comes in, every family of parallel training leaves, compared."""
