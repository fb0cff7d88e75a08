"""What a Hugging Face `config.json` says, and its writer.

In comes a mapping of JSON, or a spec; out go fields of a spec, or such a mapping. `families` has
what each family's members share (a record of `family`), from which `usual_sizes` follow, `file`
gives typed access, `dense` and `mixtures` read sizes and `rotation` rotary positions; `writer`
writes the file of a spec, whose family `family_of_spec` finds, with a family's `further_keys`.
"""
