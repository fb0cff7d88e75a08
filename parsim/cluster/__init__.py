"""Devices, systems and clusters: catalog files come in, records of what they describe leave.

`hardware` holds the records, `reader` makes a catalog of the shipped files (`catalog/`, a source
beside each number) and of users' own, `groups` joins nodes that differ, `topology` makes the graph
of links, `importers` read what machines print of themselves, `background` is traffic beside a job.
"""
