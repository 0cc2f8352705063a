"""`image_gains`: how much likelier an agent's replies are beside its own images than beside those of another prompt.

A policy that ignores its images says the same whatever they show, and gains nothing. Of one that looks, the mean over
its own samples estimates a Kullback-Leibler divergence, which is positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from pettingllms_envs.observations import Image
from pettingllms_trl.records import Decision


Images = Sequence[Image]
Swapped = tuple[Decision, Images]
"""A decision, and the images of another prompt."""
IdPair = tuple[Sequence[int], Sequence[int]]
Score = Callable[[str, Sequence[IdPair], Sequence[Images]], Sequence[float]]


def with_other_images(decisions: Iterable[Decision], num_tokens: Callable[[Decision], Iterable[int]]) -> list[Swapped]:
    """The decisions whose prompts have images, each with other ones, which another prompt of its agent shows.

    Those have as many tokens, so that they fit its prompt; a decision without such a partner is left out.
    """
    alike: dict[Any, list[Decision]] = {}
    for decision in decisions:
        if decision.prompt.images:
            alike.setdefault((decision.agent, *num_tokens(decision)), []).append(decision)
    found: list[Swapped] = []
    for own in alike.values():
        for i, decision in enumerate(own):
            shown = _digests(decision.prompt.images)
            others = (other.prompt.images for other in (*own[i + 1 :], *own[:i]))
            found += [(decision, other) for other in others if _digests(other) != shown][:1]
    return found


def image_gains(swapped: Iterable[Swapped], score: Score) -> dict[str, float]:
    """Mean difference of the candidates' log-probabilities, in nats for a whole reply, by agent."""
    by_agent: dict[str, list[Swapped]] = {}
    for decision, others in swapped:
        by_agent.setdefault(decision.agent, []).append((decision, others))
    gains = {}
    for agent, pairs in by_agent.items():
        rows = [(decision.prompt.ids, each.completion.ids) for decision, _ in pairs for each in decision.candidates]
        own = score(agent, rows, [decision.prompt.images for decision, _ in pairs for _ in decision.candidates])
        other = score(agent, rows, [images for decision, images in pairs for _ in decision.candidates])
        gains[agent] = fmean(own) - fmean(other)
    return gains


def _digests(images: Images) -> list[str]:
    return [image.digest for image in images]
