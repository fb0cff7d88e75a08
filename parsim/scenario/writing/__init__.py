"""Scenarios back to YAML: a record and a plan enter, the text that reads as both leaves."""
