"""Reports of the workshop: fits and measured rows come in, Markdown below `reports/` leaves."""
