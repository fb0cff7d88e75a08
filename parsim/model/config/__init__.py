"""What a Hugging Face `config.json` says: typed access, families, rotary positions, and its writer.

In comes a mapping of JSON, or a spec; out go fields of a spec, or such a mapping.
"""
