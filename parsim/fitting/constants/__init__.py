"""Fits of constants to steps: measured cases come in, fitted constants with their errors leave.

`families.yaml` (in validation) says which constants are fitted together and to which rows;
`write` puts fitted values into the catalog, `ablation` and `leave_out` judge them.
"""
