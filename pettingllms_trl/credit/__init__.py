"""Credit schemes: compute advantages from decisions. A scheme is one pure function; the trainer does not know which.

A scheme chooses the number by which a candidate is judged, its peers, the baseline and the scale. So it is a few lines
over `grouping.py` (the number, peers, baseline, scale):

| scheme           | number                  | peers                      | baseline, scale        | sampling |
|------------------|-------------------------|----------------------------|------------------------|----------|
| `at_grpo`        | the step's reward       | same prompt, turn, ... (4) | mean, deviation        | both     |
| `counterfactual` | reward + continuations  | siblings                   | mean, deviation        | tree     |
| `grpo`           | the episode's return    | the instance's episodes    | mean, deviation        | parallel |
| `dr_mas`         | the episode's return    | the instance's decisions   | mean, deviation        | parallel |
| `gigpo`          | return; return to go    | episodes; same state       | mean, deviation; added | parallel |
| `magrpo`         | return to go            | the instance's, same turn  | mean, none             | both     |
| `loo`            | reward; return (1)      | siblings; episodes (1)     | mean of others, none   | both     |
| `max_rl`         | reward; return (1)      | siblings; episodes (1)     | mean, mean             | both     |
| `rae`            | reward; return (1)      | the role's past            | running mean, none     | both     |
| `return_to_go`   | return to go            | same turn; siblings (3)    | mean, deviation        | both     |
| `best`           | reward; to go (2)       | same prompt, turn, ... (4) | none: 1 for the best   | both     |
| `success`        | the episode's success   | none                       | none: 1 for successes  | both     |

Siblings are the candidates of one decision; every peer is the same agent's, but for (4). (1) In a tree; with
`sampling="parallel"`. (2) In a tree; the return to go with `sampling="parallel"`. (3) With `sampling="parallel"`; in a
tree. It is `at_grpo` with other options. (4) `group`: prompt, turn, phase, role, which pools agents, or several.
A scheme that uses the step's reward cannot train a role that is paid only at later steps: docs/delayed_rewards.md has
measured which schemes can.

To add one, write a function of a sequence of `Decision` that returns, for each, one number per candidate, and give it
to the trainer as `credit=`. Options of those above are set by `functools.partial`, `credit=partial(gigpo, gamma=1.0)`,
or, as in a configuration file, by name: `credit={"gigpo": {"gamma": 1.0}}`.

With `train_continuations=True`, `continuations.py` compares the decisions inside continuations, whatever the scheme:
those that follow one decision (`continuation_group="decision"`), or one candidate of it.

See also `filters.py`, which selects the groups worth training on (`filters=`), and `reward_weights.py`, which changes
the weights of a reward's parts (`alpha`, `reward_parts`).
"""

from pettingllms_trl.credit.continuations import continuation_advantages
from pettingllms_trl.credit.filters import (
    Filter,
    Kept,
    check_kept,
    first_rows,
    nonzero_variance,
    rows_to_play,
    signal_to_noise,
)
from pettingllms_trl.credit.grouping import Advantages
from pettingllms_trl.credit.rae import RunningBaseline, rae
from pettingllms_trl.credit.registry import (
    AnyFilter,
    Credit,
    Named,
    Sampling,
    SchemeFacts,
    best_sampling,
    check_advantages,
    check_states,
    facts_of,
    name_of,
    resolve,
    resolve_filter,
    resolve_filters,
)
from pettingllms_trl.credit.reward_weights import check_weights, reweighed, weigh
from pettingllms_trl.credit.schemes import at_grpo, best, counterfactual, dr_mas, gigpo, grpo, loo, magrpo, max_rl
from pettingllms_trl.records import Stateful


__all__ = [
    "Advantages",
    "AnyFilter",
    "Credit",
    "Filter",
    "Kept",
    "Named",
    "RunningBaseline",
    "Sampling",
    "SchemeFacts",
    "Stateful",
    "at_grpo",
    "best",
    "best_sampling",
    "check_advantages",
    "check_kept",
    "check_states",
    "check_weights",
    "continuation_advantages",
    "counterfactual",
    "dr_mas",
    "facts_of",
    "first_rows",
    "gigpo",
    "grpo",
    "loo",
    "magrpo",
    "max_rl",
    "name_of",
    "nonzero_variance",
    "rae",
    "resolve",
    "resolve_filter",
    "resolve_filters",
    "reweighed",
    "rows_to_play",
    "signal_to_noise",
    "weigh",
]
