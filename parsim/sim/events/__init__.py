"""Discrete events (tier C): priced actions and the wires they use come in, their times leave."""
