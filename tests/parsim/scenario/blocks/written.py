"""Scenarios that are written block by block, and what is read of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parsim.scenario import Scenario, load_scenario


def tree(**blocks: Any) -> dict[str, Any]:
    """GPT-2 on one DGX A100; a block given here replaces the default one, None takes it away."""
    default: dict[str, Any] = {
        "model": {"name": "gpt2"},
        "cluster": {"system": "dgx-a100", "nodes": 1},
        "software": "generic",
        "training": {"global_batch_size": 16, "precision": "bf16"},
        "plan": {},
    }
    return {key: block for key, block in {**default, **blocks}.items() if block is not None}


def load(folder: Path, overrides: dict[str, Any] | None = None, **blocks: Any) -> Scenario:
    """JSON is YAML 1.2, so the test's own dicts are scenario files."""
    path = folder / "s.yaml"
    path.write_text(json.dumps(tree(**blocks), indent="\t"), encoding="utf-8")
    return load_scenario(path, overrides or {})
