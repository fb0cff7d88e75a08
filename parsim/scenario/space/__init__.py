"""Values of an axis in a search block, as people write them in words."""
