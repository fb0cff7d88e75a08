"""Search on nodes that differ: plans come in, the best of their placements on the nodes leave."""
