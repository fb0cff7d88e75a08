"""Models as graphs of operations with shapes: convolutional networks, and any traced module.

A name of the catalog, a model file or a profile of layers enters and becomes a `Graph`: nodes in
order, each an operation on the outputs of others. A `Model` leaves: nodes between two legal cuts
are a layer, whose operators have exact FLOPs, parameters, traffic and kept values. The executor
builds its module from the same graph.
"""
