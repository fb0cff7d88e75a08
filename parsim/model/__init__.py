"""Models as layers of operators with exact counts; readers and a catalog of known ones."""
