"""Strategies of whole replicas: a plan's DDP step comes in, a prediction of its strategy leaves."""
