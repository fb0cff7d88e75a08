"""Steps on shared links: jobs and a fabric come in, slowdown and the full link leave."""
