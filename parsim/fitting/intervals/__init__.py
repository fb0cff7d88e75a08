"""The figures behind prediction intervals: errors of measured rows come in, quantiles leave."""
