"""How orders are found and stretched: stages, lengths and limits come in, rows of actions leave."""
