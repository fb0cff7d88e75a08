"""The model block: a name of the catalog, a config.json, or all sizes inline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parsim.cost.software import Software
from parsim.errors import ModelError, matching
from parsim.model.config.families import FAMILY_FLAGS, unlike_note
from parsim.model.config.file import read_config
from parsim.model.config.usual_sizes import usual_sizes
from parsim.model.graph.record import Graph
from parsim.model.huggingface import notes_from_config, spec_from_config
from parsim.model.reader import Description, catalog_note, load_model_catalog, model_spec
from parsim.model.transformer import TransformerSpec, check_spec, with_options
from parsim.scenario.positions import Tree
from parsim.scenario.schema.idle_keys import idle_key
from parsim.scenario.schema.model import ModelBlock

CONFIG = "config.json"
IMAGES = {"image_size", "num_classes"}
"""Sizes of networks that take images."""
_SOURCES = ("name", "config", "family")
_REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "vocab_size", "seq_len")
_WIDTHS = {"hidden_size", "num_attention_heads", "head_dim", "ffn_hidden_size"}


def build_description(
    tree: Tree, block: ModelBlock, software: Software, notes: list[str]
) -> Description:
    """Build the spec or the graph; `notes` takes what had to be assumed.

    Raises:
        ScenarioError: the block names no model, an unknown one, or one whose sizes contradict.
    """
    given = block.given()
    if "file" in given or _is_network(given.get("name", "")):
        return _graph(tree, block)
    changes = {key: value for key, value in given.items() if key not in {*_SOURCES, *IMAGES}}
    # attention is fused if the model says so, else if the software fuses it
    changes = {"fused_attention": software.fused_attention, **changes}
    spec = _transformer(tree, block, changes, notes)
    for key in IMAGES & given.keys():  # behind the name: an unknown one is the likelier slip
        message = "belongs to networks that take images, such as resnet50; leave it out"
        raise tree.error(("model", key), message)
    idle = idle_key(given, spec)
    if idle is not None:
        key, needed = idle
        message = f"has no effect without {needed}; give model.{needed} too, or leave this one out"
        raise tree.error(("model", key), message)
    return spec


def _transformer(
    tree: Tree, block: ModelBlock, changes: Mapping[str, Any], notes: list[str]
) -> TransformerSpec:
    """The spec of whichever source the block names."""
    given = block.given()
    if "family" in given:
        notes.extend(filter(None, (unlike_note(block.family),)))
        return _inline(tree, block, changes)
    if "config" in given:
        return _from_config(tree, "config", given.get("name"), block.config, changes, notes)
    if "name" in given and _is_config(tree, block.name):
        return _from_config(tree, "name", None, block.name, changes, notes)
    if "name" not in given:
        sources = "'name' (of the catalog), 'config' (a config.json), 'file' (a graph) or 'family'"
        raise tree.error(("model",), f"needs {sources} (with all sizes inline)")
    with tree.located("model", "name"):
        spec = model_spec(block.name)
    changes = {**_followed(spec, changes), **changes}
    notes.extend(filter(None, (catalog_note(block.name), *_kept_widths(spec, changes))))
    with tree.located("model"):
        return with_options(spec, **changes)


def _is_network(name: str) -> bool:
    """Whether a name is that of a network; where it is a transformer's, networks stay unread."""
    if not name or matching(name, load_model_catalog()) is not None:
        return False
    from parsim.model.graph.catalog import is_network

    return is_network(name)


def _graph(tree: Tree, block: ModelBlock) -> Graph:
    """A network of the catalog, or the graph of a model file."""
    from parsim.model.graph.catalog import network, reads_text
    from parsim.model.graph.document import read_graph

    given = block.given()
    allowed = {"file", "name"} if "file" in given else {"name", *IMAGES}
    if "file" not in given and reads_text(block.name):
        allowed = {"name", "seq_len"}
    for key in given.keys() - allowed:
        message = (
            f"cannot stand here: a graph of operations takes {', '.join(sorted(allowed))} only"
        )
        raise tree.error(("model", key), message)
    if "file" in given:
        with tree.located("model", "file"):
            return read_graph(tree.folder(("model", "file")) / block.file)
    with tree.located("model"):
        size = given.get("seq_len", given.get("image_size"))
        return network(block.name, size, given.get("num_classes"))


def _is_config(tree: Tree, name: str) -> bool:
    """Whether a model's name is that of a file, or of a folder with a config.json in it."""
    if matching(name, load_model_catalog()) is not None:
        return False
    if name.endswith(".json"):
        return True
    try:
        return (tree.folder(("model", "name")) / name / CONFIG).is_file()
    except OSError:  # longer than a file's name may be
        return False


def _from_config(
    tree: Tree,
    key: str,
    name: str | None,
    file: str,
    changes: Mapping[str, Any],
    notes: list[str],
) -> TransformerSpec:
    """The spec of a config.json that the block names at `key`, called by its path if by nothing."""
    path = tree.folder(("model", key)) / file
    seq_len = changes.get("seq_len")
    with tree.located("model", key):
        config = read_config(path)
        spec = spec_from_config(config, name=name or _config_name(path), seq_len=seq_len)
        notes.extend(notes_from_config(config, seq_len=seq_len))
    with tree.located("model"):
        return with_options(spec, **{**_followed(spec, changes), **changes})


def _config_name(path: Path) -> str:
    """`llama3-8b` for llama3-8b.json, llama3-8b/config.json and the folder llama3-8b."""
    return path.resolve().parent.name if path.name == CONFIG else path.stem


def _inline(tree: Tree, block: ModelBlock, changes: Mapping[str, Any]) -> TransformerSpec:
    missing = [key for key in _REQUIRED if key not in changes]
    if missing:
        raise tree.error(
            ("model",), f"with family '{block.family}' also needs {', '.join(missing)}"
        )
    flags = FAMILY_FLAGS[block.family]
    heads, width = changes["num_attention_heads"], changes["hidden_size"]
    with tree.located("model"):
        if "head_dim" not in changes and width % heads:
            undivided = f"num_attention_heads={heads} does not divide hidden_size={width}"
            raise ModelError(f"{undivided}; give head_dim")
        derived = usual_sizes(block.family, changes)
        name = block.given().get("name", tree.file.stem)
        spec = TransformerSpec(name=name, **{**derived, **flags, **changes})
        check_spec(spec)
    return spec


def _followed(spec: TransformerSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What follows another number of heads: as many keys and values, where each had its own."""
    heads = changes.get("num_attention_heads")
    if heads is None or spec.num_key_value_heads != spec.num_attention_heads:
        return {}
    return {"num_key_value_heads": heads}


def _kept_widths(spec: TransformerSpec, changes: Mapping[str, Any]) -> list[str]:
    """Widths that were not overridden beside ones that were: nothing is scaled along."""
    changed = [key for key in changes if key in _WIDTHS and changes[key] != getattr(spec, key)]
    shared = {"num_key_value_heads"} if "num_attention_heads" in changed else set()
    kept = sorted((_WIDTHS | shared) - changes.keys())
    if not changed or not kept:
        return []
    values = ", ".join(f"{key}={getattr(spec, key)}" for key in kept)
    return [f"model {spec.name} with another {', '.join(changed)}; as before: {values}"]
