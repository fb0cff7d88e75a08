"""What pydantic found wrong, as `file:line:column field message` lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from parsim.errors import ScenarioError, alternatives, did_you_mean, shown
from parsim.scenario.positions import KeyPath, Tree, kind
from parsim.scenario.schema.cluster import MixedBlock
from parsim.scenario.schema.file import BLOCKS, GROUP, GROUP_BLOCKS, MixedScenarioFile, ScenarioFile
from parsim.scenario.schema.values import Block
from parsim.units import whole_number, without_separators

_EXAMPLES: Mapping[KeyPath, str] = {
    ("model",): "e.g. 'model: {name: gpt3-175b}'",
    ("cluster",): "e.g. 'cluster: {system: dgx-a100, nodes: 128}'",
    ("cluster", "system"): "e.g. 'system: dgx-a100'",
    ("cluster", "nodes"): "e.g. 'nodes: 1'",
    ("cluster", "failed"): "e.g. 'failed: [nic:0.0, gpu:3]'",
    ("system",): "e.g. 'system: dgx-a100'",
    ("nodes",): "e.g. 'nodes: 1'",
    ("training",): "e.g. 'training: {global_batch_size: 1536}'",
    ("training", "global_batch_size"): "give the sequences of one step, e.g. 1536",
}


def validated(tree: Tree) -> ScenarioFile:
    """Check a tree against the schema.

    Raises:
        ScenarioError: one line for each thing that is wrong.
    """
    _open_blocks(tree)
    mixed = GROUP in tree.positions
    _check_absent(tree, mixed)
    try:
        return (MixedScenarioFile if mixed else ScenarioFile).model_validate(tree.data)
    except ValidationError as error:
        lines = [
            tree.message(_written(tree.data, item["loc"]), _words(item["loc"], item, mixed))
            for item in _without_counts(map(dict, error.errors(include_url=False)))
        ]
    raise ScenarioError("\n".join(dict.fromkeys(lines)))


def _without_counts(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complaints but those of too few values in a list of which some are wrong, and not counted."""
    every = list(items)
    lists = {item["loc"][:-1] for item in every}
    return [item for item in every if item["type"] != "too_short" or item["loc"] not in lists]


def _check_absent(tree: Tree, mixed: bool) -> None:
    """Refuse to take keys away that no block of their name could have.

    Raises:
        ScenarioError: there is no such key.
    """
    for path, position in tree.absent.items():
        block = _block(path[:-1])
        if block is None:
            continue
        names = {field.alias or name for name, field in block.model_fields.items()}
        if path[-1] not in names and path != GROUP:
            field = ".".join(map(str, path))
            raise ScenarioError(f"{position} {shown(field)} {_unknown_key(path, mixed)}")


def _written(data: object, path: KeyPath) -> KeyPath:
    """The path of what was written: one value that stands for a list of one has no number."""
    inside: Any = data
    for key in path[:-1]:
        if not isinstance(inside, dict):
            return path
        inside = inside[key]
    return path[:-1] if isinstance(path[-1], int) and not isinstance(inside, list) else path


def _open_blocks(tree: Tree) -> None:
    """A block whose lines are all commented out is an empty block, not null."""
    for path in sorted((path for path in tree.positions if _block(path)), key=len):
        if path:
            inside: Any = tree.data
            for key in path[:-1]:
                inside = inside[key]
            if inside[path[-1]] is None:
                inside[path[-1]] = {}


def _words(path: KeyPath, item: dict[str, Any], mixed: bool) -> str:
    """One complaint of pydantic in words that name value, allowed values and fix."""
    type_, value = item["type"], item["input"]
    if type_ == "extra_forbidden":
        return _unknown_key(path, mixed)
    if type_ == "missing":
        return f"is missing{_example(path)}"
    if type_ == "literal_error":
        return _unknown_choice(value, item["ctx"]["expected"])
    if type_ in _COUNTS and item["ctx"]["actual_length"]:
        return _COUNTS[type_].format(**item["ctx"])
    if type_ in _WORDS:
        wanted = _WORDS[type_].format(**item.get("ctx", {}))
        example = _example(path) if wanted == _BLOCK or type_ == "tuple_type" else ""
        if type_ == "int_type" and isinstance(value, float) and value.is_integer():
            example = f"; write {value:.0f}"
        elif type_ == "int_type" and isinstance(value, str):
            example = without_separators(value) or _of_thousands(value)
        if value is None and ":" in str(path[-1]):
            example = "; a space belongs behind the colon, as in {3: 1.2}"
        return f"must be {wanted}, got {kind(value)}{example}"
    return str(item["msg"])


def _of_thousands(text: str) -> str:
    """How 128k is written, behind a semicolon: lengths are counted in 1,024; nothing of others."""
    digits = whole_number(text.strip().lower().removesuffix("k"))
    return f"; write {digits * 1024}" if digits and text.strip().lower().endswith("k") else ""


def _example(path: KeyPath) -> str:
    """How the value of a path is written, behind a semicolon; nothing where nobody wrote one."""
    behind = path[len(GROUP) + 1 :] if path[: len(GROUP)] == GROUP else path
    example = _EXAMPLES.get(behind, "")
    return f"; {example}" if example else ""


def _block(path: KeyPath) -> type[Block] | None:
    """What a path of keys leads to, if that is a block."""
    words = tuple(map(str, path))
    if words[: len(GROUP)] == GROUP and len(words) > len(GROUP):
        return GROUP_BLOCKS.get(words[len(GROUP) + 1 :])
    return BLOCKS.get(words) or BLOCKS.get((*words[:-1], "*"))


def _unknown_key(path: KeyPath, mixed: bool) -> str:
    block, key = _block(path[:-1]), str(path[-1])
    if mixed and path[:-1] == ("cluster",):
        block = MixedBlock
    if block is None:
        raise RuntimeError(f"no block at {path[:-1]}")
    allowed = [field.alias or name for name, field in block.model_fields.items()]
    if block is MixedBlock and key in BLOCKS["cluster",].model_fields:
        return (
            f"stands beside cluster.groups; each group of nodes has its own: write it as "
            f"cluster.groups.NAME.{key}"
        )
    if path == ("cluster", key) and not mixed:
        allowed.append("groups")
    elsewhere = "" if did_you_mean(key, allowed) else _elsewhere(key)
    return f"is an unknown key{elsewhere}{alternatives(key, allowed)}"


def _elsewhere(key: str) -> str:
    """Name the block that a misplaced key belongs to."""
    homes = [".".join((*path, key)) for path, block in BLOCKS.items() if key in block.model_fields]
    return f" (did you mean '{homes[0]}'?)" if homes else ""


def _unknown_choice(value: object, expected: str) -> str:
    allowed = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    return f"{kind(value)} is unknown{alternatives(shown(value), allowed)}"


_COUNTS: Mapping[str, str] = {
    "too_short": "must be a list of at least {min_length} values, got {actual_length}",
    "too_long": "must be a list of at most {max_length} values, got {actual_length}",
}
_BLOCK = "a block of 'key: value' lines"
_WORDS: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number",
    "float_type": "a plain number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "a text that is not empty",
    "tuple_type": "a list",
    "too_short": "a list of at least one value",
    "model_type": _BLOCK,
    "dict_type": _BLOCK,
    "model_attributes_type": _BLOCK,
    "greater_than_equal": "at least {ge:.12g}",
    "greater_than": "above {gt:.12g}",
    "less_than_equal": "at most {le:.12g}",
    "less_than": "below {lt:.12g}",
}
