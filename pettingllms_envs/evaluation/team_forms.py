"""The forms with which a team is compared: those that its environment declares, as arms with agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.suggestions import did_you_mean


FULL, ROUTED, TEAM, CUT, ALONE = "full", "routed", "team", "cut", "alone"
ARMS = (FULL, ROUTED, TEAM, CUT, ALONE)
"""What an arm can be; `alone` is an arm for each member, see `forms_of`."""


class ArmForm(NamedTuple):
    """The form of an arm.

    Args:
        settings: All settings with which its environment is made; None of the team: its own.
        player: The agent of the team that plays it; empty if it has the team's agents.
    """

    settings: Mapping[str, Any] | None
    player: str = ""


def is_alone(arm: str) -> bool:
    """Whether a member plays alone in an arm."""
    return arm == ALONE or arm.startswith(f"{ALONE}-")


def forms_of(env: Any) -> dict[str, ArmForm]:
    """The forms that a team's environment declares, and its own, by the arm's name in the order of `ARMS`."""
    declared = env.metadata.get("cooperation")
    if not declared:
        workflow = env.metadata.get("settings", {}).get("workflow")
        having = f" with the workflow {workflow!r}" if workflow else ""
        raise ValueError(
            f"{env.metadata.get('name')}{having} declares no forms to compare; expected those of a team in"
            " metadata['cooperation']: full, routed, cut and alone. Choose a team's workflow, such as that of"
            " `pettingllms cooperation archives`, or declare them (docs/cooperation.md)."
        )
    alone = [ArmForm(each["settings"], each["player"]) for each in declared.get(ALONE) or ()]
    found = {
        FULL: _form(declared.get(FULL)),
        ROUTED: _form(declared.get(ROUTED)),
        TEAM: ArmForm(None),
        CUT: _form(declared.get(CUT)),
        **{ALONE if len(alone) == 1 else f"{ALONE}-{form.player}": form for form in alone},
    }
    return {name: form for name, form in found.items() if form is not None}


def chosen(forms: Mapping[str, ArmForm], wanted: Sequence[str]) -> list[str]:
    """Names of the arms to play; `alone` stands for every member alone.

    Args:
        wanted: Names; the team is always among the chosen.
    """
    names: dict[str, None] = {}
    for each in wanted:
        found = [name for name in forms if name == each or (each == ALONE and is_alone(name))]
        if not found:
            hint = did_you_mean(each, forms) or f" Name those that it has: --arms {' '.join(forms)}."
            raise ValueError(
                f"the environment has no form for the arm {each!r}; expected one of: {', '.join(forms)}.{hint}"
            )
        names |= dict.fromkeys(found)
    return [name for name in forms if name in names or name == TEAM]


def inherited(team: Mapping[str, AgentSpec], arm: str, form: ArmForm, agents: Iterable[str]) -> dict[str, AgentSpec]:
    """The agents of the team in another form: each in its own place, or the form's player in all."""
    found = {agent: team.get(form.player or agent) for agent in agents}
    if unknown := [form.player or agent for agent, spec in found.items() if spec is None]:
        raise ValueError(
            f"{unknown[0]!r} of the arm {arm!r} is none of the team's agents: {', '.join(team)}; expected one of them "
            f"as its player. Name its agent: --arm-agents {arm}=AGENT."
        )
    return {agent: spec for agent, spec in found.items() if spec is not None}


def _form(declared: Mapping[str, Any] | None) -> ArmForm | None:
    return None if declared is None else ArmForm(declared["settings"], declared["player"])
