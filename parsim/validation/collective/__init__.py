"""Measured collectives: tables come in, predictions beside them and their errors leave."""
