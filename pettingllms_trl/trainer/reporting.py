"""`GenerationReporter`: what a run says of each generation: metrics, warnings, and the log of rollouts.

It returns metrics by name; the trainer hands them to TRL's log.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms_envs.episodes.observing import state_fields
from pettingllms_trl import credit as credits
from pettingllms_trl.checkpoints import recorder
from pettingllms_trl.credit import Advantages
from pettingllms_trl.credit.continuations import CONTINUED
from pettingllms_trl.credit.grouping import group_exactness
from pettingllms_trl.credit.reward_functions import RewardScores, warnings_of_constant_rewards
from pettingllms_trl.credit.selection import metrics_of
from pettingllms_trl.policies.team import Team
from pettingllms_trl.processes.on_all import on_all
from pettingllms_trl.records import Decision, role_of
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT
from pettingllms_trl.trainer.collector import Generation, Played, RolloutCollector
from pettingllms_trl.trainer.episode_metrics import EpisodeMetrics, Metrics
from pettingllms_trl.trainer.monitor import LearningMonitor, warn_above_progress_bar
from pettingllms_trl.trainer.setup import Setup


if TYPE_CHECKING:
    from pettingllms_trl.trainer.rollout_checks import RolloutAudit


class GenerationReporter:
    """Says how each generation went: its metrics, warnings and audit, the table of completions, and its log."""

    def __init__(
        self,
        setup: Setup,
        team: Team,
        facts: credits.SchemeFacts,
        collector: RolloutCollector,
        monitor: LearningMonitor,
        *,
        temperature: float,
        is_main: bool,
    ) -> None:
        self._setup, self._args, self._team, self._facts = setup, setup.args, team, facts
        self._collector, self._monitor, self._temperature = collector, monitor, temperature
        self.reward_names, self._is_main = tuple(setup.rewards.names), is_main
        self._recorder = self._make_recorder() if setup.args.log_rollouts and is_main else None
        self._audit = None if setup.args.audit is None else self._make_audit()

    # ---- Each generation --------------------------------------------------------------------------------------------

    def observe(
        self, generation: Generation, advantages: Advantages, of_continuations: Advantages, *, step: int
    ) -> None:
        """Warn where a generation shows that an agent cannot learn or groups are broken; write its rollouts."""
        episodes = generation.played.episodes
        decisions = [*generation.decisions, *generation.continuations]
        advantages = [*advantages, *of_continuations]
        found = list(self._monitor.observe(episodes, decisions, advantages))
        of_decision = dict(zip(map(id, decisions), advantages, strict=True))
        if self._audit is not None:
            found += self._audit.observe(episodes, of_decision)
        if self._is_main:
            for words in found:
                warn_above_progress_bar(f"step {step}: {words}")
        if self._recorder is not None:
            self._record(self._recorder, generation, of_decision, step=step + 1)

    def metrics_of(self, generation: Generation, *, step: int, is_first: bool) -> Metrics:
        """What is logged of a generation. Useless reward functions are warned of before the first is trained on."""
        of_agent, learning = self._team.routing.of_agent, [policy.name for policy in generation.learning]
        branched = of_agent if self._setup.branched is None else self._setup.branched
        groups_of = [agent for agent, policy in of_agent.items() if policy in learning and agent in branched]
        of_episodes = EpisodeMetrics(self.reward_names, groups_of=groups_of, policies=of_agent)
        of_episodes.add(generation.played)
        metrics = of_episodes.of_generation()
        metrics |= self._metrics_of_groups(generation)
        for of, progress in self._collector.curricula.progress.items():
            name = "curriculum/level" if of == DEFAULT_ENVIRONMENT else f"env/{of}/curriculum/level"
            metrics[name] = [float(progress.index + 1)]
        if self._collector.filters or self._args.max_resamples:
            selection = metrics_of(
                generation.selection, num_played=len(generation.rows), num_wanted=self._collector.rows_per_generation
            )
            metrics |= {name: [value] for name, value in selection.items()}
            if not generation.selection.kept.decisions and self._is_main:
                warnings.warn(
                    f"step {step}: the filters dropped every decision of the generation, so nothing is learnt from it "
                    "and the weights stay as they are. If that goes on, look at the rewards (log_completions=True); "
                    "choose instances neither too hard nor too easy, raise num_generations, or play more rows "
                    "(max_resamples).",
                    stacklevel=2,
                )
        if is_first:
            self._warn_of_rewards(generation)
        return metrics

    def _warn_of_rewards(self, generation: Generation) -> None:
        """Warn of reward functions and weights of reward parts that change nothing."""
        by_turn = _scores_by_turn(generation.played) if self.reward_names else {}
        found = warnings_of_constant_rewards(by_turn.values()) if by_turn else []
        weights = self._setup.weigh
        if weights is not None and weights.late:
            found += weights.warnings_of_missing_parts(set().union(*on_all(lambda: weights.seen)))
        for warning in found if self._is_main else ():
            warnings.warn(warning, stacklevel=2)

    def _metrics_of_groups(self, generation: Generation) -> Metrics:
        """Whether the credit compares answers to the same prompt, and what of continuations is trained on."""
        metrics: Metrics = {}
        compared = [("", generation.decisions, self._facts.peers)]
        if self._args.train_continuations:
            trained = [generation.continuations[i] for i in generation.kept_continuations]
            metrics["rollout/continuation_decisions"] = [len(trained)]
            metrics["rollout/continuation_tokens"] = [sum(len(each.played.completion.ids) for each in trained)]
            compared.append(("continuations/", generation.continuations, CONTINUED[self._args.continuation_group]))
        for kind, decisions, peers in compared:
            for agent, exactness in group_exactness(decisions, peers).items() if peers is not None else ():
                prefix = f"agent/{agent}/{kind}"
                if kind or self._args.sampling != "tree":  # a decision of a tree has its own candidates for peers
                    metrics[f"{prefix}frac_without_peers"] = [exactness.frac_without_peers]
                if exactness.frac_exact is not None:
                    metrics[f"{prefix}frac_exact_groups"] = [exactness.frac_exact]
        return metrics

    def table_of(self, decisions: Sequence[Decision], played: Played) -> dict[str, list[Any]]:
        """What the user's reward functions gave and wrote, for the completions table: one set of columns for all."""
        if not self.reward_names:
            return {}
        written = dict.fromkeys(name for _, scores in played.scores.values() for name in scores.columns)
        found = [played.scores.get(id(c.completion)) for d in decisions for c in d.candidates]
        scored = [None if each is None else each[1] for each in found]
        return {
            **{name: [each and each.rewards[name] for each in scored] for name in self.reward_names},
            **{name: [each and each.columns.get(name) for each in scored] for name in written},
        }

    # ---- The log of rollouts, and the audit -------------------------------------------------------------------------

    def _record(
        self,
        log: recorder.RolloutRecorder,
        generation: Generation,
        advantages: Mapping[int, Sequence[float]],
        *,
        step: int,
    ) -> None:
        """Write a generation's episodes to the log of rollouts."""
        names = {name: str(pool[0].metadata.get("name", name)) for name, pool in self._setup.envs.items()}
        teams = {name: pool[0].possible_agents for name, pool in self._setup.envs.items()}
        made = recorder.rows(
            generation.played.episodes,
            advantages,
            generation.rows,
            environments={**names, "": next(iter(names.values()))},
            teams={**teams, "": next(iter(teams.values()))},
            states=self._states(),
            policies=self._team.routing.of_agent,
            step=step,
            before=log.begin(step),
            first=self._collector.rows_played.number - len(generation.rows),
        )
        shown = {
            image.digest: image
            for episode in generation.played.episodes
            for decision in (*episode.decisions, *episode.continuations)
            for image in decision.prompt.images
        }
        log.write(made, shown.values())

    def _config(self) -> dict[str, Any]:
        """What decides the groups of the run, as `run.json` has it."""
        args, of_agent = self._args, self._team.routing.of_agent
        return {
            "agents": {agent: {"policy": policy} for agent, policy in of_agent.items()},
            "model": str(getattr(self._team.model.config, "_name_or_path", "")),
            "sampling": args.sampling,
            "num_generations": args.num_generations,
            "temperature": self._temperature,
            "credit": {
                "name": credits.name_of(self._setup.credit),
                "sums_to_zero": self._facts.sums_to_zero,
                "judges_own_step": self._facts.value == "reward",
                "scale": self._facts.scale,
            },
            "learning_rate": args.learning_rate,
            "loss_type": args.loss_type,
            "seed": args.seed,
        }

    def _make_recorder(self) -> recorder.RolloutRecorder:
        """Training rollouts are written by one process, for each knows all episodes."""
        metadata = {name: pool[0].metadata for name, pool in self._setup.envs.items()}
        roles = {agent: role_of(agent) for agent in self._team.routing.of_agent}
        about = recorder.header(self._setup.environment, metadata, roles, self._config())
        return recorder.RolloutRecorder(Path(self._args.output_dir) / "rollouts", about)

    def _states(self) -> dict[str, dict[str, Any]]:
        """What a record says of each environment's states, by the names that episodes have."""
        states = {name: state_fields(pool[0].metadata) for name, pool in self._setup.envs.items()}
        return {**states, "": next(iter(states.values()))}

    def _make_audit(self) -> RolloutAudit:
        from pettingllms_envs.audit.recorded import run_of  # only runs with an audit pay for it
        from pettingllms_trl.trainer.rollout_checks import RolloutAudit

        run = run_of({"kind": "rollouts", "config": self._config()})
        histories = [name for name, fields in self._states().items() if "states" in fields]
        return RolloutAudit(run, raises=self._args.audit == "stop", histories=histories)


def _scores_by_turn(played: Played) -> dict[tuple[str, int], list[RewardScores]]:
    """What the reward functions gave to the candidates of each agent at each turn."""
    scores: dict[tuple[str, int], list[RewardScores]] = {}
    for decision in (d for episode in played.episodes for d in episode.decisions):
        for candidate in decision.candidates:
            if found := played.scores.get(id(candidate.completion)):
                scores.setdefault((decision.agent, decision.turn), []).append(found[1])
    return scores
