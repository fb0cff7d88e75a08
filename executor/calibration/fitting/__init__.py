"""From samples to a catalog file, and from such a file back to what it holds.

In come samples and the catalog's entries; out go fitted constants, curves, residuals and the text
of the file; an earlier file is read back into its entries and sources.
"""
