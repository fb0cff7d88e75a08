"""Weights of published models in and out: safetensors files under Hugging Face's names.

In come a folder and the name of one of our parameters; out goes its values. The other way round the
ranks of a trained plan write such a folder together. Needs neither safetensors nor transformers
(reports/decisions/0019-safetensors.md).
"""
