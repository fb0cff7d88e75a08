"""Search on equal nodes: a table of legal plans comes in, its best by their exact steps leave."""
