"""Networks of the catalog, one file a family; each function returns a `Graph`."""
