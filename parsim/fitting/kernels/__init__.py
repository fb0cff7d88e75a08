"""Fits kernel constants: tables of measured kernels come in, constants and residuals leave."""
