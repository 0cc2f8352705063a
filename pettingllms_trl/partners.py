"""Partners behind an API: a function of the user's that is given chat messages and returns a reply."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pettingllms_trl.engine import Request, Sampled
from pettingllms_trl.policies import Api
from pettingllms_trl.records import Completion


def ask(api: Api, requests: Sequence[Request], *, num_threads: int) -> list[Sampled]:
    """One reply to each request, in their order. It has no token ids, so nobody can be trained on it.

    Args:
        api: Gets a copy of the messages.
        requests: `num_candidates` is not looked at.
        num_threads: So many calls at once; 0: one after another on the caller's thread.

    Raises:
        RuntimeError: The function raised, or returned no text; it names the agent that asked.
    """

    def reply(request: Request) -> Sampled:
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

    if not num_threads:
        return [reply(request) for request in requests]
    with ThreadPoolExecutor(num_threads, "api") as threads:
        return list(threads.map(reply, requests))
