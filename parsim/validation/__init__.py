"""Published and users' own measured runs, and the comparison of predictions with them."""
