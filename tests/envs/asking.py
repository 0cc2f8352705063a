"""A plain PettingZoo environment with chat texts, none of this package but for its space."""

from pettingzoo import AECEnv

from pettingllms_envs.spaces import ChatText


class Ask(AECEnv):
    """Shows the row's prompt once; rewards are left to reward functions."""

    metadata = {"name": "ask_v0", "render_modes": []}
    no_prompt = "(There is no prompt.)"  # shown where a row has none: PettingZoo's own tests reset without options

    def __init__(self):
        self.possible_agents = ["solver_0"]
        self.text = ChatText()  # the space of all strings

    def observation_space(self, agent):
        return self.text

    def action_space(self, agent):
        return self.text

    def observe(self, agent):
        return self.prompt

    def reset(self, seed=None, options=None):
        self.prompt = (options or {}).get("prompt", self.no_prompt)  # a column of the row
        self.agents, self.agent_selection = ["solver_0"], "solver_0"
        self.rewards, self._cumulative_rewards = {"solver_0": 0.0}, {"solver_0": 0.0}
        self.terminations, self.truncations = {"solver_0": False}, {"solver_0": False}
        self.infos = {"solver_0": {}}

    def step(self, action):
        if action is None:
            self._was_dead_step(action)
        else:
            self.terminations = {"solver_0": True}
