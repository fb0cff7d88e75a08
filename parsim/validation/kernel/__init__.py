"""Measured kernels: tables come in, predicted rows and summaries of their errors leave."""
