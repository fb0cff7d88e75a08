"""Programs of several rounds: ranks repeat their tasks and meet in queues; times and ages leave."""
