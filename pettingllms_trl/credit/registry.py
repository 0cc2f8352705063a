"""Resolves a user's `credit=` and `filters=` to functions, and validates them on a synthetic rollout."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

from pettingllms_envs.suggestions import did_you_mean
from pettingllms_trl.credit.filters import Filter, check_kept, nonzero_variance, signal_to_noise
from pettingllms_trl.credit.grouping import Advantages, Peers, Scale, Value, episodes, peers_of, same_turn, siblings
from pettingllms_trl.credit.rae import RunningBaseline  # noqa: F401  # which is one of SCHEMES by this
from pettingllms_trl.credit.schemes import SCHEMES, Options, Sums
from pettingllms_trl.credit.schemes import Sampling as Sampling
from pettingllms_trl.records import Candidate, Completion, Decision, Prompt, Stateful


Credit = Callable[[Sequence[Decision]], Advantages]
"""A credit scheme: computes advantages in the order of the decisions, one for each candidate."""


class SchemeFacts(NamedTuple):
    """What is known of a resolved scheme. The defaults say that nothing is: of a user's own function.

    Args:
        sums_to_zero: The group of an agent's candidates over which the advantages sum to zero: `"siblings"`, the
            candidates of a decision; for decisions with one candidate, those of an instance at one `"turn"`, in all
            `"episodes"` (one decision of each), or all of the `"instance"`. `None`: the baseline is no group's mean.
        peers: With which single decisions' candidates are compared; `None`: whole episodes are, or nothing is.
        value: The number by which it compares candidates, with the discount `gamma`; `None`: by several, or by none.
        scale: What it divides by: `"group"`, `"batch"` or `"none"`, as in [`at_grpo`], or `"mean"` for the group's
            mean. `None`: it has no such option.
        compares_states: Whether it takes candidates or decisions in equal states for alike.
        has_baseline: Whether it subtracts one, as decisions of continuations are compared with their mean.
    """

    sums_to_zero: Sums | None = None
    peers: Peers | None = None
    value: Value | None = None
    gamma: float = 1.0
    scale: str | None = None
    compares_states: bool = False
    takes_negative: bool = True
    has_baseline: bool = True
    reads_phases: bool = False

    def deviation(self, *, default: Scale) -> Scale:
        """The deviation that it divides by, or `default` if it divides by another number or is unknown."""
        return next((each for each in get_args(Scale) if each == self.scale), default)


_FILTERS: Mapping[str, Callable[..., Any]] = {each.__name__: each for each in (nonzero_variance, signal_to_noise)}

Named = Mapping[str, Options]
"""A built-in scheme or filter with options, as in a configuration file: `{"at_grpo": {"value": "outcome"}}`."""


def resolve(
    credit: str | Named | Credit, *, sampling: Sampling, scale: Scale, num_candidates: int, num_continuations: int = 0
) -> Credit:
    """The user's credit scheme, validated on a synthetic rollout before any training starts.

    That rollout has two instances, two agents (`first_0`, `second_0`) and two turns. It leaves no trace in a scheme
    with a state: that of a `Stateful` scheme is restored, and of another object a copy is called. A plain function is
    called itself: one that writes into an outer variable (a running statistic, a log) sees the synthetic rollout. Make
    such a function an object.

    A built-in scheme may be given by name, by name with options, as a function, or as a `partial` of it with options;
    the remaining options have the defaults of its name. Any other function is used unchanged.

    Args:
        credit: A name, `{name: options}`, or a function of the decisions.
        scale: TRL's `scale_rewards`, for the schemes that normalise by a deviation (`at_grpo`, `counterfactual`,
            `grpo`, `dr_mas`, `gigpo`). The others scale as in their papers, unless given otherwise.
        num_continuations: How often the rollout continues each candidate's branch to its end.

    Raises:
        ValueError: The name is unknown, the scheme needs the other kind of sampling or continuations, an option is out
            of range, or it did not return one finite number per candidate on the synthetic rollout.
    """
    name: str | None
    if callable(credit):
        function, given = _taken_apart(credit)
        name = next((name for name, scheme in SCHEMES.items() if scheme.function is function), None)
    else:
        name, given = _named("credit", "credit scheme", credit, SCHEMES)
    scheme: Any = credit if name is None else _made(name, given, sampling=sampling, scale=scale)
    if facts_of(scheme, sampling).value == "value" and num_continuations < 1:
        raise ValueError(
            f"credit={name!r} with {num_continuations} continuations of each candidate, expected at least 1: "
            "it judges a candidate by playing its branch on. Set num_continuations, or choose another credit."
        )
    probe = _probe(sampling, num_candidates, num_continuations)
    before = copy.deepcopy(scheme.state_dict()) if isinstance(scheme, Stateful) else None
    tried: Any = scheme if isinstance(scheme, Stateful) else _copy(scheme)
    check_advantages(tried(probe), probe)
    if isinstance(scheme, Stateful) and before is not None:
        scheme.load_state_dict(before)  # the synthetic rollout must not influence training
    return scheme


def best_sampling(credit: str | Named | Credit) -> Sampling:
    """The kind of sampling that suits a credit scheme best: `"tree"` for a function of the user's."""
    given: list[Any] = (
        [_taken_apart(credit)[0]] if callable(credit) else [credit] if isinstance(credit, str) else [*credit]
    )
    found = [scheme for name, scheme in SCHEMES.items() if name in given or scheme.function in given]
    return next(iter(found[0].options)) if found else "tree"


def _copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy to call instead of a callable object. Plain functions, and objects with a lock, an open file or a tensor
    with a graph, cannot be copied and are returned themselves."""
    try:
        return copy.deepcopy(function)
    except (TypeError, RuntimeError):  # the latter from torch and multiprocessing
        return function


AnyFilter = str | Named | Filter


def resolve_filters(filters: AnyFilter | list[AnyFilter] | None, **of_rollout: Any) -> list[Filter]:
    """The user's group filters: none, one, or a list of them, each as `resolve_filter` gives it."""
    given = filters if isinstance(filters, list) else [] if filters is None else [filters]
    return [resolve_filter(one, **of_rollout) for one in given]


def resolve_filter(
    group_filter: AnyFilter,
    *,
    sampling: Sampling,
    credit: Credit | None = None,
    num_candidates: int = 2,
    num_continuations: int = 0,
) -> Filter:
    """The user's group filter, validated on a synthetic rollout.

    A built-in filter compares what the resolved scheme `credit` compares, unless its options say otherwise. Where that
    is not known it compares a decision's candidates by their rewards in a tree, and an agent's episodes by their
    returns with `sampling="parallel"`.
    """
    if callable(group_filter):
        base, given = _taken_apart(group_filter)
    else:
        name, given = _named("the group filter", "group filter", group_filter, _FILTERS)
        base = _FILTERS[name]
    if base in _FILTERS.values():
        _check_options(f"the group filter {name_of(base)}", base, given)
        group_filter = partial(base, **_compared(given, credit, sampling))
    assert callable(group_filter)
    probe = _probe(sampling, num_candidates, num_continuations)
    check_kept(_copy(group_filter)(probe), probe, name=name_of(group_filter))
    return group_filter


def _compared(given: Options, credit: Credit | None, sampling: Sampling) -> Options:
    """The options of a built-in filter: those given, and for the rest the number and the peers of the credit."""
    facts = SchemeFacts() if credit is None else facts_of(credit, sampling)
    if "value" not in given and facts.value is not None:
        given = {"value": facts.value, "gamma": facts.gamma, **given}
    value = given.get("value", "reward" if sampling == "tree" else "outcome")
    alone = siblings if sampling == "tree" else episodes if value == "outcome" else same_turn
    return {"value": value, "peers": facts.peers or alone, **given}


def name_of(function: Callable[..., Any]) -> str:
    """Name of a scheme or filter in logs and errors; a built-in one's in configuration files."""
    base, given = _taken_apart(function)
    for name, scheme in SCHEMES.items():  # a scheme may be another's function with options
        own = scheme.options.values()
        if scheme.function is base and any(options and options.items() <= given.items() for options in own):
            return name
    return base.__name__ if inspect.isroutine(base) or inspect.isclass(base) else type(base).__name__


def facts_of(credit: Credit, sampling: Sampling) -> SchemeFacts:
    """What is known of a resolved scheme."""
    function, given = _taken_apart(credit)
    if not inspect.isroutine(function):  # an object, whose options are its attributes
        function, given = type(function), vars(function)
    scheme = next((scheme for scheme in SCHEMES.values() if scheme.function is function), None)
    if scheme is None:
        return SchemeFacts()
    options = {name: given.get(name, parameter.default) for name, parameter in _keywords(function).items()}
    of_episodes = scheme.compares_episodes and sampling == "parallel" and options["value"] == "outcome"
    peers = peers_of(options["group"]) if "group" in options else scheme.peers
    value: Value | None = scheme.value or options.get("value")
    keys = peers.args[0] if isinstance(peers, partial) else {"turn"}
    is_by_turn = "role" not in keys and not keys.isdisjoint(("turn", "prompt"))
    return SchemeFacts(
        sums_to_zero="episodes" if of_episodes else scheme.sums.get(sampling) if is_by_turn else None,
        peers=None if of_episodes else peers,
        reads_phases="phase" in keys,
        value=value,
        gamma=options.get("gamma", 1.0),
        scale=scheme.scale or options.get("scale"),
        compares_states=scheme.groups_states or _of_branches(value, sampling),
        takes_negative=scheme.takes_negative,
        has_baseline=scheme.has_baseline,
    )


def _of_branches(value: Value | None, sampling: Sampling) -> bool:
    """Whether the numbers of `value` go by which candidates of a decision reached one state."""
    return sampling == "tree" and value in ("return_to_go", "outcome")


def check_states(histories: Sequence[str], credit: Credit, filters: Sequence[Filter], sampling: Sampling) -> None:
    """Raise `ValueError` if a resolved scheme or filter compares states that are histories.

    Replies that mean the same move lead to different histories, so it would silently compare something else.
    `histories` has the names of the environments with `metadata["state"] == "history"`.
    """
    found = [f"credit={name_of(credit)!r}"] if facts_of(credit, sampling).compares_states else []
    values = [(name_of(each), _taken_apart(each)[1].get("value")) for each in filters]
    found += [f"the filter {name!r}" for name, value in values if _of_branches(value, sampling)]
    if histories and found:
        raise ValueError(
            f"{' and '.join(found)} with sampling={sampling!r} compares states, but those of {', '.join(histories)} "
            "are histories (metadata['state']): replies that mean the same move lead to different ones. Expected a "
            "team that says what it keeps: where it is a function, write yield Ask(role, text, keeps=...) in each of "
            "its questions, with what its variables still need later, keeps=() for nothing (docs/new_function.md). "
            "Elsewhere take what compares no states: credit='grpo' with sampling='parallel', or "
            "credit='counterfactual' with num_continuations=1."
        )


def _keywords(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: each for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}


def check_advantages(advantages: Advantages, decisions: Sequence[Decision]) -> None:
    """Validate that there is one finite number for each candidate of each decision."""
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
        if not all(map(math.isfinite, values)):
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
    known = list(_keywords(function))
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
    row = SCHEMES[name]
    _check_options(f"credit={name!r}", row.function, given)
    if sampling not in row.options:
        (needs,) = row.options
        raise ValueError(
            f"credit={name!r} with sampling={sampling!r}: it compares "
            f"{'the candidates of a decision' if needs == 'tree' else 'whole episodes of an instance'}, which "
            f"sampling={needs!r} gives. Set sampling={needs!r} or choose another credit."
        )
    own = _keywords(row.function)
    is_scaled = "scale" in own and own["scale"].default == "group"
    filled = {**({"scale": scale} if is_scaled else {}), **row.options[sampling], **given}
    if "group" in own and sampling == "parallel" and "group" not in filled:
        raise ValueError(
            f"credit={name!r} with sampling='parallel': it compares the candidates of one prompt, of which an episode "
            "has one, expected sampling='tree'. Set sampling='tree' or choose another credit; or compare the episodes "
            f"at equal turns, though their prompts differ, with credit={{{name!r}: {{'group': 'turn'}}}}."
        )
    scheme: Credit = row.function(**filled) if isinstance(row.function, type) else partial(row.function, **filled)
    return scheme


def _probe(sampling: Sampling, num_candidates: int, num_continuations: int) -> list[Decision]:
    """Two instances, two agents, two turns; one group of the four is constant, as happens in real rollouts."""
    num_episodes, num_siblings = (1, num_candidates) if sampling == "tree" else (num_candidates, 1)
    return [
        Decision(
            instance=instance,
            episode=episode,
            agent=agent,
            turn=turn,
            prompt=Prompt([{"role": "user", "content": "?"}], (0,)),
            candidates=tuple(
                Candidate(
                    completion=Completion(ids=(0,), text=str(k)),
                    reward=float((k + episode) * instance),
                    continuations=(float(k * instance),) * num_continuations,
                )
                for k in range(num_siblings)
            ),
            chosen=0,
            episode_return=float(2 * instance * episode),
            return_to_go=float((2 - turn) * instance * episode),
            success=episode > 0,
            phase="?",
        )
        for instance in range(2)
        for episode in range(num_episodes)
        for turn in range(2)
        for agent in ("first_0", "second_0")
    ]
