"""Collectives alone, as nccl-tests runs them: groups and sizes come in, seconds and busbw leave."""
