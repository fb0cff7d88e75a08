"""Attention as torch modules: of heads, latent, windowed, with rotary positions or shaped scores.

A model's sizes enter; modules and kernels of one layer's attention leave.
"""
