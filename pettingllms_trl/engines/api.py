"""Partners behind an API: a function of the user's that is given chat messages and returns a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pettingllms_trl.engines.protocol import Request, Sampled
from pettingllms_trl.engines.remote import Elsewhere
from pettingllms_trl.policies.routing import Api
from pettingllms_trl.records import Completion


def ask(api: Api, request: Request) -> Sampled:
    """One reply to a request. It has no token ids, so nobody can be trained on it.

    Args:
        api: Gets a copy of the messages.
        request: `num_candidates` is not looked at.

    Raises:
        RuntimeError: The function raised, or returned no text; it names the agent that asked.
    """
    try:
        text = api([dict(message) for message in request.prompt])
    except Exception as error:  # a stranger's function may raise anything; it is told whose it was, and goes on
        raise RuntimeError(
            f"the API partner of agent {request.agent!r} raised {type(error).__name__}: {error}. Let the function "
            "retry what is worth retrying."
        ) from error
    if not isinstance(text, str):
        raise RuntimeError(
            f"the API partner of agent {request.agent!r} returned a {type(text).__name__}, expected a str: the "
            "reply's text. Return that."
        )
    return Sampled(prompt_ids=(), completions=(Completion(ids=(), text=text),))


class Asking(Elsewhere[Sampled]):
    """Asks APIs on threads, beside whatever else answers; see `pettingllms_trl.engines.protocol.Engine`.

    Args:
        of_agent: The function of each agent.
        num_threads: So many calls at once.
    """

    def __init__(self, of_agent: Mapping[str, Api], *, num_threads: int) -> None:
        super().__init__(num_threads, "api")
        self._of_agent = of_agent

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`."""
        self._send(ticket, ask, self._of_agent[request.agent], request, read=lambda sampled: sampled)


def in_turn(of_agent: Mapping[str, Api], requests: Sequence[Request]) -> list[Sampled]:
    """Replies in the order of the requests, one call after another on the caller's thread."""
    return [ask(of_agent[request.agent], request) for request in requests]
