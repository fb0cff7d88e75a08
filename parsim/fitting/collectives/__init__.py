"""Fits constants of collectives: public curves come in, constants and their errors leave."""
