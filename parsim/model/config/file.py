"""The content of a Hugging Face `config.json` with typed access.

Every error names the key, its value and the model type. Switches, head counts and dropout that the
file leaves out fall back on the default of the family (`families.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsim.errors import ModelError, ScenarioError, did_you_mean, shown
from parsim.files import read_json
from parsim.model.config.families import FAMILIES
from parsim.model.config.family import Family

MOST_SIZE = 10**12
"""No size of a model is larger."""

ACTIVATIONS: Mapping[str, str] = {
    "gelu": "gelu",
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    "relu": "relu",
    "relu2": "relu_squared",
}
"""Names of functions in a file, and a spec's."""


def read_config(path: Path) -> dict[str, Any]:
    """Read a `config.json`, or the one inside a model's folder, as a dict.

    Raises:
        ScenarioError: the file is missing, unreadable, not JSON or not a JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    missing = "; give the path of a Hugging Face config.json"
    config = read_json(file, error=ScenarioError, missing=missing)
    if not isinstance(config, dict):
        raise ScenarioError(
            f'{file}:1:1 must be a JSON object like {{"model_type": "llama", ...}}, '
            f"got a {type(config).__name__}"
        )
    return config


@dataclass(frozen=True, slots=True)
class Config:
    """The values of a config with typed access; every error names key, value and model type."""

    values: Mapping[str, Any]
    model_type: str
    part_of: str = ""
    """The model of several parts whose text part this is."""

    @staticmethod
    def open(config: Mapping[str, Any]) -> Config:
        """A config of a supported family; of a model that sees images too, its text part.

        Raises:
            ModelError: the family is not named, or none that is supported.
        """
        supported = (
            f"{', '.join(sorted(FAMILIES))}; of another family write the sizes into the "
            f"model block, or `parsim profile` the module"
        )
        if "model_type" not in config:
            raise ModelError(f"config has no key 'model_type'; supported: {supported}")
        model_type, text = config["model_type"], config.get("text_config")
        if isinstance(model_type, str) and model_type in FAMILIES:
            return Config(config, model_type)
        if isinstance(text, dict) and text.get("model_type") in FAMILIES:
            return Config(text, text["model_type"], part_of=str(model_type))
        guess = did_you_mean(str(model_type), FAMILIES)
        value = shown(json.dumps(model_type, default=repr))
        raise ModelError(f"model_type={value} is not supported{guess}; supported: {supported}")

    @property
    def family(self) -> Family:
        """What its family has in common."""
        return FAMILIES[self.model_type]

    def _wrong(self, key: str, wanted: str) -> ModelError:
        value = shown(json.dumps(self.values[key], default=repr))
        return ModelError(f"{key}={value} in a {self.model_type} config must be {wanted}")

    def integer(self, key: str) -> int:
        """A whole number of at least 1 that must be in the file.

        Raises:
            ModelError: the key is missing, or its value no such number.
        """
        if key not in self.values:
            if key in self.family.left_out:
                return self.family.left_out[key]
            raise ModelError(
                f"{self.model_type} config has no key '{key}'; add it, it decides the model's size"
            )
        return self._whole(key, least=1)

    def amount(self, key: str, default: int) -> int:
        """A whole number that may be 0; `default` where the key is absent or null."""
        return default if self.values.get(key) is None else self._whole(key, least=0)

    def _whole(self, key: str, least: int) -> int:
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(key, f"a whole number of at least {least}")
        if value > MOST_SIZE:
            raise self._wrong(key, f"at most {MOST_SIZE}")
        return value

    def optional_integer(self, key: str, default: int | None) -> int | None:
        """A whole number, or `default` where the key is absent, or None where it is null."""
        if key not in self.values:
            return default
        return None if self.values[key] is None else self.integer(key)

    def flag(self, key: str, default: bool) -> bool:
        """True or false, or `default` where the key is absent."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def word(self, key: str, known: Sequence[str], default: str) -> str:
        """One of the known words, or `default` where the key is absent."""
        value = self.values.get(key, default)
        if value not in known:
            raise self._wrong(key, f"one of {', '.join(known)}")
        return str(value)

    def probability(self, key: str, default: float) -> float:
        """A number from 0 to 1, 0 where it is null, or `default` where the key is absent."""
        value = self.values.get(key, default)
        if value is None:
            return 0.0
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            raise self._wrong(key, "a number from 0 to 1")
        return float(value)

    def number(self, key: str, default: float) -> float:
        """A number of at least 0, or `default` where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value <= MOST_SIZE
        ):
            raise self._wrong(key, "a number of at least 0")
        return float(value)

    def cap(self, key: str, default: float) -> float:
        """A number that values stay below, 0 (none) where it is null, `default` where absent."""
        return self.number(key, 0.0) if key in self.values else default

    def within(self, key: str) -> Config | None:
        """The mapping under a key, read as a config of the same family; None without one."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, "a mapping")
        return Config(value, self.model_type)

    def norm_epsilon(self) -> float:
        """What every norm adds to the variance."""
        return self.number(*self.family.epsilon)

    def activation(self) -> str:
        """The function between an MLP's products; the usual one of its kind by that name."""
        flags = self.family.flags
        ungated = "gelu" if flags.get("post_norm") else "gelu_tanh"
        usual = "silu" if flags.get("gated_mlp") else ungated
        stated, assumed = self.values.get(self.family.activation), flags.get("activation", "usual")
        if stated is None:
            return str(assumed)
        if not isinstance(stated, str) or stated not in ACTIVATIONS:
            raise self._wrong(self.family.activation, f"one of {', '.join(ACTIVATIONS)}")
        return "usual" if ACTIVATIONS[stated] == usual else ACTIVATIONS[stated]

    def architectures(self) -> tuple[str, ...]:
        """Names of the classes that the file was written for."""
        value = self.values.get("architectures")
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong("architectures", "a list of class names")
        return tuple(value)

    def head_dim(self, width: str, heads: str) -> int:
        """Width of a head: the file's in llama and its kin, else an equal share.

        Raises:
            ModelError: a key is missing, its value no whole number, or the shares are not equal.
        """
        if self.family.latent:
            return self.integer("qk_nope_head_dim") + self.integer("qk_rope_head_dim")
        if self.family.flags.get("rope"):
            stated = self.optional_integer("head_dim", self.family.head_dim)
            if stated is not None:
                return stated
        size, count = self.integer(width), self.integer(heads)
        if size % count:
            raise ModelError(f"{heads}={count} does not divide {width}={size}")
        return size // count

    def longest_sequence(self) -> int:
        """What the model was made for."""
        return self.integer(self.family.length) - self.family.spare_positions

    def dropout(self) -> dict[str, float]:
        """Dropout probabilities by the family's keys."""
        keys = self.family.dropout
        return {key: self.probability(key, default) for key, default in keys.items()}

    def require(self, key: str, expected: str | int) -> None:
        """Refuse what would change the sizes and no spec can express."""
        if self.values.get(key, expected) != expected:
            raise self._wrong(key, f"{json.dumps(expected)}; anything else is not supported")
