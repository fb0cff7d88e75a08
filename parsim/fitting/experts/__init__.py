"""Experts' plans beside the search's: published runs come in, what the search makes of them leaves.

A vendor that publishes a run has tuned its plan by measuring. `judge` searches the same job and
says where that plan stands; the page is `parsim/fitting/reports/experts.py`.
"""
