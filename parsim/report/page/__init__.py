"""Pages of HTML that need nothing beside themselves: results come in, one text leaves.

Tables are those of the commands, pictures those of the reports as drawings inside the page; no page
refers to the network, and equal results give equal bytes.
"""
