"""Forms of an environment with which its team is compared, see `pettingllms cooperation`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple


class Form(NamedTuple):
    """A form of an environment with which its team is compared.

    Args:
        settings: How it is made: those settings that are not the team's, such as `{"workflow": "alone"}`.
        player: Name of the environment's agent of the team that also plays this form, such as `"left_0"`; empty if the
            form has the team's agents.
    """

    settings: Mapping[str, Any]
    player: str = ""


class Forms(NamedTuple):
    """The forms that show what cooperation is worth; None, or no form, where there is none.

    A workflow that has some has the attribute `forms`; what they do not set is as in the team's environment, as far as
    their workflow has it. An environment that `assemble` did not make has them in `metadata["cooperation"]`.

    Args:
        full: One agent that is shown everything.
        routed: The same agent, told in each turn what the team's order says, and shown no more than who acts then.
        cut: The team, but no message arrives.
        alone: One agent that is shown what a single member is, a form for each such member, all of other players.
    """

    full: Form | None = None
    routed: Form | None = None
    cut: Form | None = None
    alone: Sequence[Form] = ()


def cooperation_of(
    forms: Forms, team: Mapping[str, Any], fields_of: Callable[[str], Collection[str]]
) -> dict[str, Any]:
    """The other forms of a task that needs a team, as `metadata["cooperation"]` has them: with all that makes them.

    Args:
        team: The team's settings; those of its workflow are left out where the form's workflow has none such.
        fields_of: The settings of a workflow, by its name.
    """

    def described(form: Form | None) -> dict[str, Any] | None:
        if form is None:
            return None
        whole = {**team, **form.settings}
        only = set(fields_of(team["workflow"])) - set(fields_of(whole["workflow"]))
        return {"settings": {key: whole[key] for key in whole if key not in only}, "player": form.player}

    of_one = {"full": described(forms.full), "routed": described(forms.routed), "cut": described(forms.cut)}
    return {**of_one, "alone": [described(form) for form in forms.alone]}
