"""Advantages of the decisions inside continuations, for `train_continuations=True`.

A continuation plays a candidate's branch to the end with one sample for each decision. So its decisions have no
siblings, and a scheme that compares siblings has nothing to say about them; this comparison is the same with every
credit scheme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pettingllms_trl.credit.grouping import Advantages, Peers, Scale, compare, same_branch, same_continued
from pettingllms_trl.records import Decision


Continued = Literal["decision", "candidate"]
CONTINUED: Mapping[Continued, Peers] = {"decision": same_continued, "candidate": same_branch}
"""The peers of a decision inside a continuation, by what they all continue."""


def continuation_advantages(
    decisions: Sequence[Decision], /, *, scale: Scale = "group", group: Continued = "decision"
) -> Advantages:
    r"""Advantages by the return from the step on, `A = (G - mean G) / (std G + 1e-4)`, among continuations.

    The group of a decision has all decisions of its agent at its turn in the continuations of the same decision's
    candidates: at most `num_generations * num_continuations`, of which only those that continue the same candidate
    begin in the same state. With `group="candidate"` it has only these, `num_continuations` at most, and the agent
    that acts first in them has the same prompt in all.

    The baseline is unbiased all the same. Continuations of one decision are sampled independently, given its
    candidates and the randomness of the environment. So for a decision in one of them, with prompt `s` and reply `a`,
    the returns of the others say nothing about `a`, given `s`: any function `b` of them has
    `E[grad log pi(a|s) b] = 0`. The mean over the group of N includes the decision's own return, which makes the
    advantage (N - 1) / N of that with the mean of the others; N does not depend on `a`. What the different states of
    the others cost is variance. Decisions of the episode itself are in no such group, since with `choose="value"` the
    returns of continuations decide how it goes on. The division by a deviation has the bias that it has in GRPO.

    Args:
        decisions: Of continuations, with one candidate each.
        scale: As in [`at_grpo`]; the deviation of `"batch"` is over all of the agent's decisions here.
        group: Whether all peers continue the candidates of one `"decision"`, or the same `"candidate"`.

    Returns:
        One number for each decision; 0 for a decision whose agent reached its turn in no other continuation.

    Example:
        Of two candidates, each continued once, the continuations pay an agent 3 and 1 from its next step on: with
        `scale="none"` their decisions get 1 and -1. The first has a further turn that the second does not reach: 0.
    """
    numbers = [[decision.return_to_go] for decision in decisions]
    return compare(decisions, numbers, peers=CONTINUED[group], scale=scale)
