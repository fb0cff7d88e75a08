"""Timelines of a simulated step: finish times come in, spans and memory curves leave."""
