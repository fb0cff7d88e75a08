"""A mixture of experts as torch modules: who meets whom, the products, how evenly experts are busy.

A model's sizes and the ranks that share its experts out enter; the module in place of an MLP
leaves.
"""
