"""Measured steps: a table's row comes in as text, a job and a plan to predict (`Case`) leave."""
