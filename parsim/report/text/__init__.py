"""Results as text for people: records come in, tables and sentences for a terminal leave."""
