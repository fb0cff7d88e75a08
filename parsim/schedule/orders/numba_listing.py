"""The loops of `listing` compiled by numba, for the extra `fast`: the same source, the same bits.

Kept apart because importing numba costs a third of a second: `loops` asks for it only in a
process that has listed many orders already.
"""

from __future__ import annotations

import numba
from numba.extending import register_jitable

from parsim.schedule.orders import listing

for part in (listing.wait, listing.start, listing.most_urgent, listing.finish):
    register_jitable(part)

list_turns = numba.njit(cache=True)(listing.list_turns)
end_all = numba.njit(cache=True)(listing.end_all)
