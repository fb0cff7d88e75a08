"""The machine under the ranks: its devices, the mesh that a plan lays over them, torch itself.

In come a plan and the kind of device asked for; out go a report of what there is, this rank's
device and groups, and an error where torch or the machine cannot hold the plan.
"""
