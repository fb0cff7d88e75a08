"""Strategies whose workers train copies of their own and average the weights now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from parsim.plan.strategies.strategy import Strategy

Topology = Literal["ring", "exponential"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gossip(Strategy):
    """Workers average their weights with neighbours in every step (D-PSGD)."""

    name: ClassVar[str] = "gossip"
    shares_weights: ClassVar[bool] = False
    topology: Topology = "ring"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousGossip(Strategy):
    """Workers average their weights with a drawn peer, each at its own pace (AD-PSGD)."""

    name: ClassVar[str] = "asynchronous_gossip"
    shares_weights: ClassVar[bool] = False
    updates: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSGD(Strategy):
    """Workers average their weights every so-many-th step.

    Those of a node do so every `node_every` steps (None: with all). The first `after` of `steps`
    average gradients instead (post-local; `steps` None: until the first average of weights).
    """

    name: ClassVar[str] = "local_sgd"
    shares_weights: ClassVar[bool] = False
    every: int = 8
    node_every: int | None = None
    after: int = 0
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiLoCo(Strategy):
    """The average of the workers' changes is the gradient of an outer optimizer.

    That is SGD with Nesterov momentum; the defaults are the paper's (arXiv 2311.08105).
    """

    name: ClassVar[str] = "diloco"
    shares_weights: ClassVar[bool] = False
    every: int = 500
    outer_lr: float = 0.7
    outer_momentum: float = 0.9
