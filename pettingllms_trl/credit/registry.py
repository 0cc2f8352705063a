"""Resolves a user's `credit=` and `filters=` to functions, and validates them on a synthetic rollout."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, get_args

from pettingllms_envs.suggestions import did_you_mean
from pettingllms_trl.credit.filters import Filter, check_kept, nonzero_variance, signal_to_noise
from pettingllms_trl.credit.grouping import Advantages, Peers, Scale, episodes, same_turn, siblings
from pettingllms_trl.credit.rae import RunningBaseline
from pettingllms_trl.credit.schemes import (
    GROUPS,
    at_grpo,
    counterfactual,
    dr_mas,
    gigpo,
    grpo,
    loo,
    magrpo,
    max_rl,
)
from pettingllms_trl.records import Candidate, Completion, Decision, Stateful


Sampling = Literal["tree", "parallel"]


class Credit(Protocol):
    """A credit scheme: computes advantages in the order of the decisions, one for each candidate."""

    def __call__(self, decisions: Sequence[Decision], /) -> Advantages: ...


class _Scheme(NamedTuple):
    """A built-in scheme: the kinds of sampling that it supports, and its default options with each."""

    function: Callable[..., Any]
    options: Mapping[Sampling, Mapping[str, Any]]
    scaled: bool = False  # whether `scale_rewards` sets its scale; the others use that of their papers


_EITHER: Mapping[Sampling, Mapping[str, Any]] = {"tree": {}, "parallel": {"value": "outcome"}}
_SCHEMES: Mapping[str, _Scheme] = {
    "at_grpo": _Scheme(at_grpo, {"tree": {}, "parallel": {}}, scaled=True),
    "grpo": _Scheme(grpo, {"parallel": {}}, scaled=True),
    "magrpo": _Scheme(magrpo, {"tree": {}, "parallel": {}}),
    "loo": _Scheme(loo, _EITHER),
    "rae": _Scheme(RunningBaseline, _EITHER),
    "gigpo": _Scheme(gigpo, {"parallel": {}}, scaled=True),
    "dr_mas": _Scheme(dr_mas, {"parallel": {}}, scaled=True),
    "max_rl": _Scheme(max_rl, _EITHER),
    "counterfactual": _Scheme(counterfactual, {"tree": {}}, scaled=True),
}
_FILTERS: Mapping[str, Callable[..., Any]] = {
    "nonzero_variance": nonzero_variance,
    "signal_to_noise": signal_to_noise,
}


Named = Mapping[str, Mapping[str, Any]]
"""A built-in scheme or filter with options, as in a configuration file: `{"at_grpo": {"value": "outcome"}}`."""


def resolve(
    credit: str | Named | Credit,
    *,
    sampling: Sampling,
    scale: Scale,
    num_candidates: int,
    num_continuations: int = 0,
) -> Credit:
    """The user's credit scheme, validated on a synthetic rollout before any training starts.

    That rollout has two instances, two agents (`first_0`, `second_0`) and two turns. It leaves no trace in a scheme
    with a state: that of a `Stateful` scheme is restored, and of another object a copy is called. A plain function is
    called
    itself: one that writes into an outer variable (a running statistic, a log) sees the synthetic rollout. Make such a
    function an object.

    A built-in scheme may be given by name, by name with options, as a function, or as a `partial` of it with options;
    the remaining options have the defaults of its name. Any other function is used unchanged.

    Args:
        credit: A name, `{name: options}`, or a function of the decisions.
        sampling: How instances are played.
        scale: TRL's `scale_rewards`, for the schemes that normalise by a deviation (`at_grpo`, `counterfactual`,
            `grpo`, `dr_mas`, `gigpo`). The others scale as in their papers, unless given otherwise.
        num_candidates: K.
        num_continuations: How often the rollout continues each candidate's branch to its end.

    Raises:
        TypeError: `credit` is neither a name nor a function.
        ValueError: The name is unknown, the scheme needs the other kind of sampling or continuations, an option is out
            of range, or it did not return one finite number per candidate on the synthetic rollout.
    """
    name: str | None
    if callable(credit):
        function, given = _taken_apart(credit)
        name = next((name for name, scheme in _SCHEMES.items() if scheme.function is function), None)
    else:
        name, given = _named("credit", "credit scheme", credit, _SCHEMES)
    if name is None:
        scheme: Any = credit
    else:
        _check_options(f"credit={name!r}", _SCHEMES[name].function, given)
        scheme = _made(name, given, sampling=sampling, scale=scale)
    assert callable(scheme)
    if name == "counterfactual" and num_continuations < 1:
        raise ValueError(
            f"credit='counterfactual' with {num_continuations} continuations of each candidate, expected at least 1: "
            "it judges a candidate by playing its branch on. Set num_continuations, or choose another credit."
        )
    probe = _probe(sampling, num_candidates, num_continuations)
    before = copy.deepcopy(scheme.state_dict()) if isinstance(scheme, Stateful) else None
    tried: Any = scheme if isinstance(scheme, Stateful) else _copy(scheme)
    check_advantages(tried(probe), probe)
    if isinstance(scheme, Stateful) and before is not None:
        scheme.load_state_dict(before)  # the synthetic rollout must not influence training
    return scheme


def _copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy to call instead of a callable object. Plain functions, and objects with a lock, an open file or a tensor
    with a graph, cannot be copied and are returned themselves."""
    try:
        return copy.deepcopy(function)
    except (TypeError, RuntimeError):  # the latter from torch and multiprocessing
        return function


AnyFilter = str | Named | Filter


def resolve_filters(
    filters: AnyFilter | list[AnyFilter] | None, *, sampling: Sampling, num_candidates: int, num_continuations: int = 0
) -> list[Filter]:
    """The user's group filters: none, one, or a list of them. Raises the same errors as `resolve_filter`."""
    given = filters if isinstance(filters, list) else [] if filters is None else [filters]
    return [
        resolve_filter(one, sampling=sampling, num_candidates=num_candidates, num_continuations=num_continuations)
        for one in given
    ]


def resolve_filter(
    group_filter: AnyFilter, *, sampling: Sampling, num_candidates: int = 2, num_continuations: int = 0
) -> Filter:
    """The user's group filter, validated on a synthetic rollout.

    A filter given by name compares a decision's candidates by their rewards in a tree, and an agent's episodes by
    their returns with `sampling="parallel"`.

    Raises:
        TypeError: It is neither a name nor a function, or it did not return a `Kept`.
        ValueError: The name or an option is unknown or out of range, or it kept decisions that it was not given.
    """
    if callable(group_filter):
        base, given = _taken_apart(group_filter)
    else:
        name, given = _named("the group filter", "group filter", group_filter, _FILTERS)
        base = _FILTERS[name]
    if base in _FILTERS.values():
        _check_options(f"the group filter {name_of(base)}", base, given)
        options: Mapping[str, Any] = {} if sampling == "tree" else {"value": "outcome", "peers": episodes}
        group_filter = partial(base, **{**options, **given})
    assert callable(group_filter)
    probe = _probe(sampling, num_candidates, num_continuations)
    check_kept(_copy(group_filter)(probe), probe, name=name_of(group_filter))
    return group_filter


def name_of(function: Callable[..., Any]) -> str:
    """Name of a scheme or filter in logs and errors."""
    base, _ = _taken_apart(function)
    return base.__name__ if inspect.isroutine(base) or inspect.isclass(base) else type(base).__name__


def judges_own_step_alone(credit: Credit, sampling: Sampling) -> bool:
    """Whether a resolved scheme is a built-in one that compares candidates by the reward of their own step.

    For a user's own function this is unknown, and the answer is no.
    """
    if isinstance(credit, RunningBaseline):
        return sampling == "tree" and credit.value == "reward"
    function, options = _taken_apart(credit)
    if function is not at_grpo and (sampling != "tree" or function not in (loo, max_rl)):
        return False
    value = options.get("value", inspect.signature(function).parameters["value"].default)
    return bool(value == "reward")


Sums = Literal["siblings", "turn", "episodes", "instance"]


def sums_to_zero(credit: Credit, sampling: Sampling) -> Sums | None:
    """The group of an agent's candidates over which the advantages of a resolved scheme sum to zero.

    Returns:
        `"siblings"`, the candidates of a decision; for decisions with one candidate, those of an instance at one
        `"turn"`, in all `"episodes"` (one decision of each), or all of the `"instance"`. `None`: the baseline is not a
        group's mean, or the scheme is a user's own function.
    """
    function, options = _taken_apart(credit)
    if sampling == "tree":
        return "siblings" if function in (at_grpo, counterfactual, loo, magrpo, max_rl) else None
    if function is grpo or (function in (loo, max_rl) and options.get("value") == "outcome"):
        return "episodes"
    if function is dr_mas:
        return "instance"
    return "turn" if function in (at_grpo, magrpo, loo, max_rl) else None


def peers_of(credit: Credit) -> Peers | None:
    """The peers with which a resolved scheme compares the candidates of single decisions.

    Returns:
        `None`: it compares whole episodes or has no groups, or it is a user's own function.
    """
    function, options = _taken_apart(credit)
    if function is at_grpo:
        return GROUPS[options.get("group", "prompt")]
    if function is counterfactual:
        return siblings
    is_by_turn = function is magrpo or (function in (loo, max_rl) and options.get("value") != "outcome")
    return same_turn if is_by_turn else None


def scale_of(credit: Credit) -> str | None:
    """The number by which a resolved scheme divides.

    Returns:
        `"group"`, `"batch"` or `"none"`, as in [`at_grpo`], or `"mean"` for the group's mean. `None`: the scheme has
        no such option, or it is a user's own function.
    """
    function, options = _taken_apart(credit)
    if function is max_rl:
        return "mean"
    if not any(function is scheme.function for scheme in _SCHEMES.values()):
        return None
    default = inspect.signature(function).parameters.get("scale")
    scale = options.get("scale", None if default is None else default.default)
    return scale if isinstance(scale, str) else None


def deviation_of(credit: Credit, *, default: Scale) -> Scale:
    """The deviation by which a resolved scheme divides, or `default` if it divides by another number or is unknown."""
    scale = scale_of(credit)
    return next((each for each in get_args(Scale) if each == scale), default)


def check_advantages(advantages: Advantages, decisions: Sequence[Decision]) -> None:
    """Validate that there is one finite number for each candidate of each decision.

    Raises:
        ValueError: There is not. The message names the decision.
    """
    if len(advantages) != len(decisions):
        raise ValueError(
            f"the credit function returned advantages for {len(advantages)} decisions, expected {len(decisions)}: "
            "return one sequence per decision, in their order"
        )
    for i, (values, decision) in enumerate(zip(advantages, decisions, strict=True)):
        if not hasattr(values, "__len__") or len(values) != len(decision.candidates):
            raise ValueError(
                f"the credit function returned {values!r} for decision {i} ({decision.agent}, turn {decision.turn}), "
                f"expected {len(decision.candidates)} numbers, one per candidate"
            )
        if not all(math.isfinite(value) for value in values):
            raise ValueError(
                f"the credit function returned {values!r} for decision {i} ({decision.agent}, turn {decision.turn}): "
                "advantages must be finite. A group whose rewards are all equal has deviation 0; guard the division"
            )


def _named(what: str, kind: str, given: Any, known: Collection[str]) -> tuple[str, Mapping[str, Any]]:
    """A name and its options, given as a name or as `{name: options}`."""
    options: Any = {}
    if isinstance(given, Mapping) and len(given) == 1:
        ((given, options),) = given.items()
    if not isinstance(given, str) or not isinstance(options, Mapping):
        raise TypeError(
            f"{what} is {given!r}, expected a name ({', '.join(known)}), a name with options "
            f"({{'{next(iter(known))}': {{'value': 'reward'}}}}), or a function of the decisions"
        )
    if given in known:
        return given, options
    hint = f"{did_you_mean(given, known)} Known: {', '.join(known)}"
    raise ValueError(f"no {kind} {given!r}.{hint}; or give a function of decisions.")


def _check_options(what: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or " Leave it out."
            raise ValueError(f"{what} with the option {name!r}, expected some of {', '.join(known) or 'none'}.{hint}")


def _taken_apart(given: Callable[..., Any]) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """A function, and the options that a `partial` sets."""
    if isinstance(given, partial) and not given.args:
        return given.func, given.keywords
    return given, {}


def _made(name: str, given: Mapping[str, Any], *, sampling: Sampling, scale: Scale) -> Credit:
    """A built-in scheme with the given options, and the defaults of its name for the rest."""
    function, options, scaled = _SCHEMES[name]
    if sampling not in options:
        (needs,) = options
        raise ValueError(
            f"credit={name!r} with sampling={sampling!r}: it compares "
            f"{'the candidates of a decision' if needs == 'tree' else 'whole episodes of an instance'}, which "
            f"sampling={needs!r} gives. Set sampling={needs!r} or choose another credit."
        )
    if function is at_grpo and sampling == "parallel" and "group" not in given:
        raise ValueError(
            "credit='at_grpo' with sampling='parallel': it compares the candidates of one prompt, of which an episode "
            "has one, expected sampling='tree'. Set sampling='tree' or choose another credit; or compare the episodes "
            "at equal turns, though their prompts differ, with credit={'at_grpo': {'group': 'turn'}}."
        )
    filled = {**({"scale": scale} if scaled else {}), **options[sampling], **given}
    scheme: Credit = function(**filled) if isinstance(function, type) else partial(function, **filled)
    return scheme


def _probe(sampling: Sampling, num_candidates: int, num_continuations: int) -> list[Decision]:
    """Two instances, two agents, two turns; one group of the four is constant, as happens in real rollouts."""
    num_episodes, width = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    return [
        Decision(
            instance=instance,
            episode=episode,
            agent=agent,
            turn=turn,
            prompt=[{"role": "user", "content": "?"}],
            prompt_ids=(0,),
            candidates=tuple(
                Candidate(
                    completion=Completion(ids=(0,), text=str(k)),
                    reward=float((k + episode) * instance),
                    continuations=(float(k * instance),) * num_continuations,
                )
                for k in range(width)
            ),
            chosen=0,
            episode_return=float(2 * instance * episode),
            return_to_go=float((2 - turn) * instance * episode),
        )
        for instance in range(2)
        for episode in range(num_episodes)
        for turn in range(2)
        for agent in ("first_0", "second_0")
    ]
