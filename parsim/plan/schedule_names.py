"""Names of pipeline schedules that a plan may have, and what those of a family share."""

from __future__ import annotations

_CHUNKED = ("interleaved_1f1b", "looped_bfs", "hanayo")
_WHOLE = ("naive", "gpipe", "1f1b", "eager_1f1b", "bpipe", *_CHUNKED)
_SPLIT = ("zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto")
_V_SHAPED = ("zb_v", "v_half", "v_min", "dualpipe_v")

TWO_WAY = ("chimera", "dualpipe")
"""Schedules with two copies of the model in opposite directions."""

SCHEDULE_NAMES = (*_WHOLE, *_SPLIT, *_V_SHAPED, *TWO_WAY)
"""Schedules a plan may name; `parsim.schedule.SCHEDULES` holds their generators."""

_RARE = ("eager_1f1b", "bpipe", "looped_bfs", "hanayo", "dualpipe_v", *TWO_WAY)

BALANCED = frozenset({"bpipe"})
"""Schedules that keep activations of some ranks on others."""

USUAL = tuple(name for name in SCHEDULE_NAMES if name not in _RARE)
"""Schedules that a search looks at where it is not told which."""

CHUNKED = frozenset(_CHUNKED)
"""Schedules with any number of chunks a rank above one."""

WHOLE = frozenset({*_WHOLE, "chimera"})
"""Schedules whose backward is one action."""

V_SHAPED = frozenset(_V_SHAPED)
"""Schedules with two chunks a rank, placed as a V."""

FOLDED = V_SHAPED.union({"hanayo"})
"""Schedules whose stages go down the ranks and back up, once or more often."""

SPLIT = V_SHAPED.union(_SPLIT, {"dualpipe"})
"""Schedules whose backward is in two actions, I and W."""

WITHOUT_FLUSH = ("pipedream", "pipedream_vertical_sync", "pipedream_2bw")
"""Schedules that update between micro-batches, and keep old weights for those on their way."""

AUTO = "auto"
"""The schedule that is ordered for the plan itself, by its seconds and bytes (`sim/orders`)."""
