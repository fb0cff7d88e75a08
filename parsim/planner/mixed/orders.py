"""Orders of a mixed cluster's groups of nodes: all of up to five groups, else some from all over.

Which orders are tried does not depend on what groups are called: they are numbered by their nodes.
"""

from __future__ import annotations

from collections import Counter
from math import factorial, prod

from parsim.cluster.groups import order_problem
from parsim.cluster.hardware import Cluster

LARGEST_NUMBER = 120
"""Orders of groups that are tried: all of up to five groups."""

Order = tuple[str, ...]


def orders(cluster: Cluster) -> list[Order]:
    """Orders of the groups that differ in the nodes that ranks meet.

    Where there are more than `LARGEST_NUMBER`, so many at equal distances among all permutations.
    """
    kinds = {group.name: (repr(group.system), group.num_nodes) for group in cluster.groups}
    every = factorial(len(kinds))
    number = min(every, LARGEST_NUMBER)
    names = list(kinds) if number == every else sorted(kinds, key=lambda name: kinds[name])
    distinct: dict[tuple[object, ...], Order] = {}
    for index in range(number):
        order = _permutation(names, index * every // number)
        if order_problem(cluster, order) is None:
            distinct.setdefault(tuple(kinds[name] for name in order), order)
    return list(distinct.values())


def _permutation(names: list[str], index: int) -> Order:
    """The permutation of this index, of all in lexicographic order."""
    rest, order = list(names), []
    for size in range(len(names), 0, -1):
        position, index = divmod(index, factorial(size - 1))
        order.append(rest.pop(position))
    return tuple(order)


def untried(cluster: Cluster) -> str:
    """How many orders of the groups are tried, in words; empty where all are."""
    alike = Counter((repr(group.system), group.num_nodes) for group in cluster.groups)
    every = factorial(len(cluster.groups)) // prod(map(factorial, alike.values()))
    if factorial(len(cluster.groups)) <= LARGEST_NUMBER:
        return ""
    return f"{len(orders(cluster))} of {every:,} orders of the groups of nodes"
