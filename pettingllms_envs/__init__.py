"""Text tasks for teams of language-model agents, as PettingZoo AEC environments.

    >>> import pettingllms_envs
    >>> env = pettingllms_envs.make("plan_path", size=6)
    >>> env.reset(seed=7, options={"split": "test"})
    >>> env.agent_selection
    'drafter_0'

Importing this package registers every environment with PettingZoo (`pettingzoo.make("aec",
"pettingllms/plan_path-v0")`) by name only: its module is imported when it is made.
"""

from pettingllms_envs.from_rows import conversation, function
from pettingllms_envs.instances import test_set
from pettingllms_envs.registry import find, list_environments, make, recorded_settings, register


__all__ = ["conversation", "find", "function", "list_environments", "make", "recorded_settings", "test_set"]

register()
