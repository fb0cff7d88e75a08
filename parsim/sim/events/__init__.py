"""Tier C: priced actions and the wires they use come in, their times by discrete events leave."""
