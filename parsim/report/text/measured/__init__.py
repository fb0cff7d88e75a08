"""Predictions beside measurements: rows with errors come in, tables for a terminal leave."""
