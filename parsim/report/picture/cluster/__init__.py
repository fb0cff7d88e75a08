"""Pictures of clusters: a graph of links comes in, where to draw what and the figure leave."""
