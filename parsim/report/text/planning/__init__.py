"""Text of plans, of choices among them, of their reasons and of whole runs."""
