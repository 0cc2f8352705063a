"""Checks of observations, infos and reset options, and that no observation contains the solution."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, ValuesView
from typing import Any

from pettingllms_envs.episodes.difference import short
from pettingllms_envs.prompts import read_observation
from pettingllms_envs.testing import play
from pettingllms_envs.testing.competition import competition


TELLING = 8  # a text with fewer characters (white space aside) than this may be in a prompt by chance
LINE_TELLING = 16  # the same for one line of a reply with several


def check_observations(case: play.Case) -> str:
    """Observations are text, for any agent at any time, and observing or modifying one changes nothing.

    An observation is a `str`, a dictionary of them with at least the key `"text"`, or a dictionary with the key
    `"messages"` alone: a list of `{"role": ..., "content": ...}`, the last one the user's.
    """
    count = 0
    env, tampered = case.make(), case.make()

    def look(env: Any) -> dict[str, Any]:
        nonlocal count
        before = play.view(env)
        for agent in env.possible_agents:
            expect_readable(agent, env.observe(agent))
            count += 1
        play.same(before, play.view(env), "a look at every agent's observation changed what is shown")
        return _without_infos(before)

    def tamper(env: Any) -> dict[str, Any]:
        shown = _without_infos(play.view(env))
        for agent in env.agents:
            observation, info = env.observe(agent), env.infos[agent]
            if isinstance(observation, dict):
                if isinstance(messages := observation.get("messages"), list):
                    messages.clear()
                observation.clear()
                emptied = "the observation after a caller emptied the one before"
                play.same(shown["observations"][agent], env.observe(agent), f"{emptied}, of {agent}")
            if isinstance(info, dict):
                _spoil(info)
        return shown

    for start in case.starts[:5]:
        clean = play.mixed_episode(case, start, env, look=look)
        play.same_course(
            clean,
            play.played_again(case, clean, tampered, look=tamper),
            "a run whose observations and infos were overwritten by the caller",
        )
    return f"{count} observations in {len(case.starts[:5])} episodes, of every agent at every moment"


def check_infos(case: play.Case) -> str:
    """Infos are reproducible plain data that JSON and pickle preserve, without the key `action_mask`."""
    count = 0

    def look(env: Any) -> Any:
        nonlocal count
        for agent in env.agents:
            info = env.infos[agent]
            if "action_mask" in _keys([info, env.observe(agent)]):
                raise play.Failed(
                    f"{agent} has a key 'action_mask'; expected none, for PettingZoo samples actions by it"
                )
            try:
                json.dumps(info)
                copied = pickle.loads(pickle.dumps(info))
            except (TypeError, ValueError, AttributeError, pickle.PicklingError) as error:
                raise play.Failed(f"the infos of {agent} are no plain data: {error}; got {short(info)}") from None
            play.same(info, copied, f"the infos of {agent} after pickling")
            count += 1
        return {"infos": pickle.loads(pickle.dumps(dict(env.infos)))}

    for start in case.starts[:5]:
        first = play.mixed_episode(case, start, look=look)
        play.same_course(first, play.played_again(case, first, look=look), "a second run has other infos")
    return f"{count} infos"


def check_options(case: play.Case) -> str:
    """Each legal value of a declared reset option works, an illegal one is a ValueError, an unknown one is ignored."""
    env, seed = case.make(), case.starts[0].seed
    env.reset(seed=seed)
    plain = play.view(env)
    env.reset(seed=seed, options={"no such option": 1})
    play.same(plain, play.view(env), "an unknown reset option is to be ignored")
    declared = env.metadata.get("reset_options")
    if declared is None:
        raise play.Skipped("it declares no metadata['reset_options']; an unknown one was ignored")
    if not isinstance(declared, Mapping):
        raise play.Failed(
            f"metadata['reset_options'] is {short(declared)}; expected each name with its legal values or ()"
        )
    for name, values in declared.items():
        for value in values:
            start = case.starts[0]._replace(options={name: value})
            first = play.mixed_episode(case, start)
            play.same_course(first, play.played_again(case, first), "a second run")
        for illegal in ("no such value", -1) if values else ():
            _expect_refusal(env, seed, {name: illegal})
    return ", ".join(f"{name} ({len(values) or 'open'})" for name, values in declared.items()) or "none declared"


def check_no_solution_shown(case: play.Case) -> str:
    """The oracle's reply is in no agent's observation, at any decision of random and of blind play.

    Agents of the roles in `metadata["informed_roles"]` may know it.

    The check searches for the whole reply, its last line, and what follows the first colon of that line (`"Moves: R R
    D"` also as `"R R D"`), all without white space and commas. Texts shorter than 8 characters, or 16 for one line of
    several, may occur by chance and are ignored; so is text of a reply that was played in the episode, which a
    workflow may pass on to others. The oracle itself is not played here. Where agents compete, prompts may name the
    moves of the game: texts of blind replies are ignored.
    """
    env = case.make()
    if play.oracle_of(env) is None:
        raise play.Skipped("it has no oracle()")
    moves = {text for reply in case.blind for text in telling(reply)} if competition(env) is not None else set()
    sought = decisions = 0
    policies: list[play.Policy | None] = [None, play.always(""), *map(play.always, case.blind[:4])]
    for i, start in enumerate(case.starts):
        said: list[str] = []
        policy = policies[i % len(policies)] or play.random_replies(case.pool, start.seed)

        def watched(env: Any, agent: str, policy: play.Policy = policy, said: list[str] = said) -> str:
            nonlocal sought, decisions
            solution, decisions = list(telling(env.unwrapped.oracle())), decisions + 1
            for each in solution:
                if each not in moves and not any(each in reply for reply in said):
                    sought += 1
                    _seek(env, each)
            reply = policy(env, agent)
            said.append(bare(reply))
            return reply

        play.episode(env, start, watched, max_steps=case.max_steps)
    if not sought and moves:
        raise play.Skipped("the oracle's replies are moves that everybody knows")
    if not sought:
        raise play.Skipped(f"the oracle's replies are too short to tell: less than {TELLING} characters")
    return f"{sought} texts of the oracle sought at {decisions} decisions of {len(case.starts)} episodes"


def expect_readable(agent: str, observation: Any) -> None:
    """Raise `Failed` unless an observation can become a prompt: a text, texts and images, or messages."""
    if type(observation) is not str and type(observation) is not dict:
        raise play.Failed(f"the observation of {agent} is {short(observation)}; expected a str or a dictionary")
    try:
        read_observation(observation, agent=agent)
    except (TypeError, ValueError) as error:
        raise play.Failed(str(error)) from None


def telling(reply: str) -> Iterator[str]:
    """The texts that would reveal a reply, without white space; see `check_no_solution_shown`."""
    lines = reply.strip().splitlines() or [""]
    least = TELLING if len(lines) == 1 else LINE_TELLING
    whole, last, answer = bare(reply), bare(lines[-1]), bare(lines[-1].partition(":")[2])
    candidates = ((whole, TELLING), (last, least), (answer, least))
    yield from dict.fromkeys(text for text, needed in candidates if len(text) >= needed)


def bare(text: str) -> str:
    """The text without white space and commas."""
    return "".join(text.replace(",", " ").split())


def _seek(env: Any, solution: str) -> None:
    roles, informed = env.metadata.get("roles", {}), env.metadata.get("informed_roles", ())
    for agent in env.possible_agents:
        if roles.get(agent) in informed:
            continue
        for text in play.texts(env.observe(agent)):
            if solution in bare(text):
                raise play.Failed(
                    f"the observation of {agent} shows the oracle's reply {short(solution)}; got {text!r}"
                )


def _expect_refusal(env: Any, seed: int, options: Mapping[str, Any]) -> None:
    try:
        with play.blaming(lambda: f"reset with options={dict(options)}, an illegal value; expected ValueError"):
            env.reset(seed=seed, options=dict(options))
    except ValueError:
        return
    raise play.Failed(
        f"reset accepts options={dict(options)}, which is not among the declared values; expected ValueError"
    )


def _keys(value: Any) -> Iterator[Any]:
    """All keys of nested dictionaries."""
    if isinstance(value, Mapping):
        yield from value
        value = value.values()
    if isinstance(value, list | tuple | ValuesView):
        for each in value:
            yield from _keys(each)


def _without_infos(shown: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shown.items() if key != "infos"}


def _spoil(info: dict[Any, Any]) -> None:
    """Overwrite all values of a nested dictionary."""
    for key, value in info.items():
        if isinstance(value, dict):
            _spoil(value)
        info[key] = "overwritten by the caller"
