"""How griffe, which reads the sources for the reference, understands what it would otherwise not."""

from __future__ import annotations

import re
from typing import Any

import griffe


class NamedTuples(griffe.Extension):
    """Gives each class derived from `NamedTuple` the constructor that Python gives it."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """See griffe."""
        if "NamedTuple" not in map(str, cls.bases):
            return
        kind = griffe.ParameterKind.positional_or_keyword
        fields = [
            griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=field.value)
            for field in cls.attributes.values()
            if field.annotation is not None
        ]
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*fields), returns=None))


class AsInTRL(griffe.Extension):
    """Reads docstrings in the manner of TRL: mentions, [`~trl.GRPOTrainer`], and types, (`int`, *optional*)."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """See griffe."""
        if obj.docstring is not None:
            text = re.sub(r"\[`~?([\w.]+)`\](?!\()", r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"(?m)^ +\w+ \([`*].*\):$", lambda line: re.sub("[`*]", "", line[0]), text)
