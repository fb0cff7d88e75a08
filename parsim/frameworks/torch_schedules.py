"""What torch.distributed.pipelining, and torchtitan after it, calls parsim's schedules."""

from __future__ import annotations

from collections.abc import Mapping

TORCH_SCHEDULES: Mapping[str, str] = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved1F1B",
    "zb_v": "ZBVZeroBubble",
    "looped_bfs": "LoopedBFS",
    "dualpipe_v": "DualPipeV",
}
"""Names of torch's classes, less `Schedule` before them, by parsim's names."""

CHUNKED = ("interleaved_1f1b", "looped_bfs")
"""Names of the schedules that take any number of chunks a rank."""

USUAL_CHUNKS = 2
"""What torchtitan gives a rank of those where a file says no layers per stage."""
