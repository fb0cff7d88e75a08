"""Measures kernels, layers and links of this machine and fits the catalog's constants to them."""
