"""Flows over shared links: paths and rates come in, max-min fair shares and finish times leave."""
