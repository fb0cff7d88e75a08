"""Models as layers of operators with exact counts, and the builders and readers that make them.

A name of the catalog, a `config.json` or the sizes of a scenario enter and become a
`TransformerSpec`; a `Model` leaves: layers in order (embedding and head among them), each with its
operators, its parameters and the values of a sample that cross its two borders. Heads, sequence
length and vocabulary are known to the spec, its builder and the operators that have them.
"""
