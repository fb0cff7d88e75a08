"""Rules of legal plans, one file a subject.

A plan, a model and a cluster come in; the message of the first broken rule leaves (`violation`), or
why the executor cannot run a legal plan (`executor`).
"""
