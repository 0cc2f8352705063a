"""`role_sampling` and `role_sampling_eval`: sampling overrides of single agents or roles, and their validation.

MultiAgentGRPOConfig(..., role_sampling={"planner": {"temperature": 0.7, "stop": ["\\n\\n"]}})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pettingllms_envs.suggestions import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOverrides:
    """Sampling overrides of one role. `None`: the configuration's value.

    Args:
        temperature: Above 0. For a trained policy, the loss divides logits by it, too.
        top_p: Mass of the nucleus, in (0, 1].
        top_k: Number of tokens kept, 0 for all.
        min_p: Least probability as a share of the greatest, in [0, 1].
        repetition_penalty: Above 0, 1 for none.
        stop: Words that end a completion. Its ids include them, since they were sampled and are trained on; the text
            that the environment gets ends before the first.
        enable_thinking: Argument of the chat template: whether a model such as Qwen3 thinks before it replies.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_completion_length: int | None = None
    stop: tuple[str, ...] | None = None
    enable_thinking: bool | None = None

    def __post_init__(self) -> None:
        for name, (legal, words) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not legal(value):
                raise ValueError(f"{name}={value!r} for a role's sampling, expected {words}. Change role_sampling.")
        if self.stop is not None and (not self.stop or not all(isinstance(word, str) and word for word in self.stop)):
            raise ValueError(f"stop={self.stop!r} for a role's sampling, expected words. Leave stop out for none.")

        if not isinstance(self.enable_thinking, bool | None):
            raise ValueError(
                f"enable_thinking={self.enable_thinking!r} for a role's sampling, expected true or false. Change it."
            )

    def given(self) -> dict[str, Any]:
        """The fields of the sampler that are set, by name; not `enable_thinking`, which is of the chat template."""
        return {name: value for name, value in self._set().items() if name != "enable_thinking"}

    def over(self, other: SamplingOverrides) -> SamplingOverrides:
        """These overrides, and where one is not set that of the other ones."""
        return replace(other, **self._set())

    def _set(self) -> dict[str, Any]:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "temperature": (lambda value: value > 0, "a number above 0"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    "top_k": (lambda value: value >= 0, "0 (all tokens) or more"),
    "min_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (lambda value: value > 0, "a number above 0"),
    "max_completion_length": (lambda value: value >= 1, "1 or more"),
}
NOTHING = SamplingOverrides()


def parse(given: Mapping[str, Any] | str | None, option: str = "role_sampling") -> dict[str, SamplingOverrides]:
    """The value of the option, `role_sampling` or `role_sampling_eval`, as overrides, by agent or role."""
    known = [f.name for f in fields(SamplingOverrides)]
    if isinstance(given, str):
        raise ValueError(f"{option} is {given!r}, expected a mapping. Write it in YAML, or as JSON.")
    overrides = {}
    for who, own in (given or {}).items():
        if not isinstance(own, Mapping):
            raise ValueError(
                f"{option}[{who!r}] is {own!r}, expected a mapping with some of {', '.join(known)}. Write "
                f"{option}={{{who!r}: {{'temperature': 0.7}}}}."
            )
        for name in own:
            if name not in known:
                hint = did_you_mean(name, known) or " Leave it out."
                raise ValueError(f"{option}[{who!r}] has {name!r}, expected some of {', '.join(known)}.{hint}")
        stop = own.get("stop")
        stop = None if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
        overrides[who] = SamplingOverrides(**{**own, "stop": stop})
    return overrides
