"""Devices, links and topologies; a catalog of real ones with a source beside each number."""
