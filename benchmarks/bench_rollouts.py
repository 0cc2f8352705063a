"""What it saves that no instance waits for another, and what the loop of a rollout costs by itself.

    PYTHONPATH=. python benchmarks/bench_rollouts.py --strict

The same `play` is run on the same draws without barriers, the candidates of a decision stepped at once, and in
lock-step, where the engine is given all instances' requests together: with instances stepped in parallel and their
candidates in turn, with everything stepped in parallel, and with everything in turn, as the reference does. Once more
without barriers the environments take no time, for what is the most there is to gain. A second part plays episodes of
one agent, without barriers and by the loop that TRL's `environment_factory` runs in (`trl_loop.py`), where TRL is
installed. README.md in this folder says what is modelled.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from figures import Figure, parser_of, write
from loop_cost import Cost, cost, profile
from simulation import Game, InTurn, SimulatedClock, SimulatedEngine, SimulatedThreads, Speed, WallClock, Workload
from token_cost import token_costs

from pettingllms_trl.records import Episode
from pettingllms_trl.rollout import RolloutOptions, play
from pettingllms_trl.rollout.workers import ThreadPool, WorkerPool


LARGE = Speed(name="8B", step_s=0.006, row_s=0.00003, prefill_s=0.020, max_num_seqs=256)
SMALL = Speed(name="1.7B", step_s=0.0025, row_s=0.00001, prefill_s=0.004, max_num_seqs=256)
HEADER = (
    "engine",
    "max seqs",
    "threads",
    "env s",
    "seed",
    "barriers",
    "seconds",
    "tok/s",
    "idle s",
    "busy",
    "bound s",
)
FASTER, IDLE, OWN_SHARE = 1.5, 0.5, 0.05
QUICK, TOOLS = "8B, quick environments", "8B, tools of 0.5 s"
WITH_GOALS = ("8B", QUICK, TOOLS)
FASTER_QUICK, FASTER_TOOLS, BUSY = 1.4, 2.0, 0.95
NOTHING = 1e-9  # seconds


@dataclass(frozen=True, slots=True)
class Played:
    """What one rollout took, in seconds of its clock."""

    seconds: float
    busy: float
    tokens: int
    episodes: list[Episode]

    @property
    def idle(self) -> float:
        """Seconds in which the engine had nothing to decode."""
        return self.seconds - self.busy

    @property
    def busy_share(self) -> float:
        """Of its seconds, those in which the engine decodes."""
        return self.busy / self.seconds


@dataclass(frozen=True, slots=True)
class Case:
    """An engine, and the threads on which environments are stepped beside it."""

    speed: Speed
    num_threads: int
    workload: Workload

    def simulated(self, *, is_batched: bool, in_turn: bool = False, num_threads: int | None = None) -> Played:
        """On a clock of its own. `in_turn`: the candidates of a decision, one after the other."""
        clock = SimulatedClock()
        workers = SimulatedThreads(clock, num_threads or self.num_threads, in_turn=in_turn)
        return self._played(clock, is_batched, workers=workers)

    def real(self, *, is_batched: bool, in_turn: bool = False) -> Played:
        """On real threads, by the wall clock."""
        return self._played(WallClock(), is_batched, workers=(InTurn if in_turn else ThreadPool)(self.num_threads))

    def _played(self, clock: Any, is_batched: bool, workers: WorkerPool) -> Played:
        engine = SimulatedEngine(clock, self.speed, self.workload, is_batched=is_batched)
        begin = clock.now()
        rollout = play(
            [{"seed": instance} for instance in range(self.workload.instances)],
            engine,
            RolloutOptions(sampling="tree", num_candidates=self.workload.candidates),
            make_env=partial(Game, self.workload, clock),
            seed=str(self.workload.seed),
            workers=workers,
        )
        assert rollout.retried == 0, "the simulated game failed"
        return Played(clock.now() - begin, engine.busy, engine.tokens, rollout.episodes)

    def bound(self) -> float:
        """Seconds below which no order of work can get: the longest instance alone, or the engine always full."""
        return max(self._engine_bound(), *map(self._instance_bound, range(self.workload.instances)))

    def _instance_bound(self, instance: int) -> float:
        """An instance that has engine and threads for itself."""
        seconds, speed = 0.0, self.speed
        for place in self.workload.places(instance):
            lengths = [self.workload.num_tokens(place, k) for k in range(self.workload.candidates)]
            seconds += speed.prefill_s + speed.step_s * max(lengths) + speed.row_s * sum(lengths)
            steps = [self.workload.step_seconds(place, k) for k in range(self.workload.candidates)]
            seconds += max(*steps, sum(steps) / self.num_threads)
        return seconds

    def _engine_bound(self) -> float:
        """Every step as full as it may be."""
        places = [place for i in range(self.workload.instances) for place in self.workload.places(i)]
        tokens = sum(self.workload.num_tokens(place, k) for place in places for k in range(self.workload.candidates))
        speed = self.speed
        return tokens * (speed.step_s / speed.max_num_seqs + speed.row_s) + speed.prefill_s * len(places)


@dataclass(frozen=True, slots=True)
class Compared:
    """A case without barriers beside lock-step, on the same draws.

    Args:
        free: Without barriers.
        lockstep: Instances in parallel, the candidates of each in turn.
        at_once: Lock-step, instances and candidates in parallel.
        serial: Lock-step, everything in turn.
        no_tools: Without barriers, in environments that take no time: no schedule of environments is quicker.
    """

    case: Case
    free: Played
    lockstep: Played
    at_once: Played | None = None
    serial: Played | None = None
    no_tools: Played | None = None

    @property
    def faster(self) -> float:
        """Throughput without barriers over lock-step's."""
        return self.lockstep.seconds / self.free.seconds

    @property
    def faster_than_at_once(self) -> float:
        """Throughput without barriers over that of lock-step with everything in parallel."""
        assert self.at_once is not None
        return self.at_once.seconds / self.free.seconds

    @property
    def most(self) -> float:
        """Throughput over lock-step's if environments took no time."""
        assert self.no_tools is not None
        return self.lockstep.seconds / self.no_tools.seconds

    @property
    def faster_than_serial(self) -> float:
        """Throughput without barriers over that of lock-step with one environment at work at a time."""
        assert self.serial is not None
        return self.serial.seconds / self.free.seconds

    @property
    def idle(self) -> float:
        """Idle engine seconds without barriers over lock-step's."""
        return self.free.idle / self.lockstep.idle

    @property
    def met(self) -> bool:
        """Whether both reach their goals."""
        return self.faster >= FASTER and self.idle <= IDLE

    def rows(self) -> list[tuple[str, ...]]:
        case, rows = self.case, []
        least, most = case.workload.env_s
        sides = {"none": self.free, "lock-step": self.lockstep, "lock-step, at once": self.at_once}
        for name, played in (sides | {"lock-step, serial": self.serial}).items():
            if played is not None:
                engine = (case.speed.name, str(case.speed.max_num_seqs))
                envs = (str(case.num_threads), f"{least:g}-{most:g}", str(case.workload.seed))
                figures = (f"{played.seconds:.1f}", f"{played.tokens / played.seconds:.0f}", f"{played.idle:.1f}")
                rows.append((*engine, *envs, name, *figures, f"{played.busy_share:.1%}", f"{case.bound():.1f}"))
        return rows


def simulate(case: Case) -> Compared:
    """A case on the simulated clock."""
    free, lockstep = case.simulated(is_batched=False), case.simulated(is_batched=True, in_turn=True)
    at_once, serial = case.simulated(is_batched=True), case.simulated(is_batched=True, num_threads=1)
    no_tools = replace(case, workload=replace(case.workload, env_s=(NOTHING, NOTHING))).simulated(is_batched=False)
    for other in (lockstep, at_once, serial, no_tools):
        assert free.episodes == other.episodes, "they shall differ in nothing but time"
    return Compared(case, free, lockstep, at_once, serial, no_tools)


def in_real_time(case: Case) -> Compared:
    """A case on real threads and by the wall clock."""
    free, lockstep = case.real(is_batched=False), case.real(is_batched=True, in_turn=True)
    at_once = case.real(is_batched=True)
    assert free.episodes == lockstep.episodes == at_once.episodes, "they shall differ in nothing but time"
    return Compared(case, free, lockstep, at_once)


# ---- The report -----------------------------------------------------------------------------------------------------


def cases(seed: int) -> dict[str, Case]:
    """The goal's first; then what changes with the engine, the threads and the environments."""
    goal = Case(LARGE, 64, Workload(seed=seed))
    return {
        "8B": goal,
        "1.7B": replace(goal, speed=SMALL),
        "8B, 16 threads": replace(goal, num_threads=16),
        "8B, 1024 sequences": replace(goal, speed=replace(LARGE, max_num_seqs=1024)),
        QUICK: replace(goal, workload=replace(goal.workload, env_s=(0.0001, 0.001))),
        TOOLS: replace(goal, workload=replace(goal.workload, env_s=(0.5, 0.5))),
        "1.7B, tools of 0.5 s": replace(goal, speed=SMALL, workload=replace(goal.workload, env_s=(0.5, 0.5))),
        "8B, tools of 2 s": replace(goal, workload=replace(goal.workload, env_s=(2.0, 2.0))),
    }


def real_case(seed: int) -> Case:
    """Some seconds of it: decoding steps of a millisecond and more, environments of 5 to 50."""
    speed = Speed(name="wall", step_s=0.001, row_s=0.00001, prefill_s=0.0005, max_num_seqs=64)
    workload = Workload(instances=16, turns=2, candidates=4, tokens=60, longest=400, env_s=(0.005, 0.05), seed=seed)
    return Case(speed, 16, workload)


def table(rows: Sequence[Sequence[str]]) -> str:
    """The rows under each other, each cell as wide as its column's widest."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def summary(name: str, compared: Sequence[Compared]) -> str:
    """One line for several seeds: medians, and the least and the greatest."""
    faster, idle = [c.faster for c in compared], [c.idle for c in compared]
    bound = statistics.median(c.free.seconds / c.case.bound() for c in compared)
    line = (
        f"{name}: {statistics.median(faster):.2f}x lock-step's throughput ({min(faster):.2f}-{max(faster):.2f}), "
        f"{statistics.median(idle):.2f} of its idle engine seconds ({min(idle):.2f}-{max(idle):.2f}), engine busy "
        f"{statistics.median(c.free.busy_share for c in compared):.1%}, {bound:.2f}x the lower bound"
    )
    for beside, found in {
        "that of lock-step with everything in parallel": [c.faster_than_at_once for c in compared if c.at_once],
        "that of lock-step with everything in turn": [c.faster_than_serial for c in compared if c.serial],
        "of lock-step's at most, if environments took no time": [c.most for c in compared if c.no_tools],
    }.items():
        line += f"; {statistics.median(found):.2f}x {beside}" if found else ""
    return line


@dataclass(frozen=True, slots=True)
class BesideTRL:
    """Seconds of the same episodes without barriers, and by TRL's loop."""

    name: str
    free: tuple[float, ...]
    trl: tuple[float, ...]

    def line(self) -> str:
        ratios = [theirs / ours for ours, theirs in zip(self.free, self.trl, strict=True)]
        spread = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
        return f"{self.name}: {spread} the throughput of TRL's environment_factory loop"


def beside_trl(seeds: Sequence[int]) -> list[BesideTRL]:
    """Episodes of one agent each, K of every instance, as TRL has them, on the same draws.

    Raises:
        ImportError: TRL is not installed.
    """
    from trl_loop import Episodes

    found = []
    for name, env_s in (("environments of 30 ms to 2 s", (0.03, 2.0)), ("of 0.1 to 1 ms", (0.0001, 0.001))):
        free, theirs = [], []
        for seed in seeds:
            workload = Workload(instances=512, candidates=1, env_s=env_s, seed=seed)
            played = Case(LARGE, 64, workload).simulated(is_batched=False)
            episodes = Episodes(LARGE, workload)
            theirs.append(episodes.run())
            assert episodes.engine.tokens == played.tokens, "they shall differ in nothing but time"
            free.append(played.seconds)
        found.append(BesideTRL(f"512 episodes, 8B, {name}", tuple(free), tuple(theirs)))
    return found


def figures(
    compared: dict[str, list[Compared]],
    real: list[Compared],
    costs: list[Cost],
    step: float,
    trl: list[BesideTRL] | None = None,
) -> list[Figure]:
    """Seconds of a rollout, a draw a round; simulated but for the wall clock's and the loop's own."""
    saved = []
    for name, group in (*compared.items(), ("wall clock", real)):
        for peer, sides in (
            ("lock-step", [c.lockstep for c in group]),
            ("lock-step, at once", [c.at_once for c in group]),
            ("serial", [c.serial for c in group]),
        ):
            seconds = tuple(side.seconds for side in sides if side is not None)
            if seconds:
                goal, met = _goal(name, peer, group)
                saved.append(
                    Figure(
                        name=f"a rollout, {name} / {peer}",
                        unit="s",
                        ours=tuple(c.free.seconds for c in group),
                        peer_name="lock-step, environments in turn" if peer == "serial" else peer,
                        peer=seconds,
                        goal=goal,
                        met=met,
                        computed=name != "wall clock",
                    )
                )
        if name in WITH_GOALS:
            busy = tuple(100 * c.free.busy_share for c in group)
            goal, met = f">= {BUSY:.0%}", statistics.median(busy) >= 100 * BUSY
            saved.append(
                Figure(
                    name=f"engine busy, {name}", unit="%", ours=busy, better="more", goal=goal, met=met, computed=True
                )
            )
    for c in costs:
        goal, met = f"< {OWN_SHARE:.0%} of a rollout", c.share(step) < OWN_SHARE
        name = f"the loop's own, a decision of {c.name}"
        saved.append(Figure(name=name, unit="us", ours=(c.own_us,), goal=goal, met=met))
    peer = "TRL's environment_factory loop"
    for each in trl or ():
        title = f"a rollout, {each.name}"
        saved.append(Figure(name=title, unit="s", ours=each.free, peer_name=peer, peer=each.trl, computed=True))
    if trl is None:
        saved.append(Figure(name="a rollout, 512 episodes", unit="s", peer_name=peer, absent="TRL is not installed"))
    return saved


def _goal(name: str, peer: str, group: Sequence[Compared]) -> tuple[str, bool | None]:
    """What is to be reached in a case beside a peer, if anything is, and whether it is."""
    if (name, peer) == ("8B", "lock-step"):
        return f">= {FASTER}x, idle <= {IDLE} of its", all(c.met for c in group)
    if (name, peer) == (QUICK, "lock-step"):
        return f">= {FASTER_QUICK}x", statistics.median(c.faster for c in group) >= FASTER_QUICK
    if (name, peer) == (TOOLS, "lock-step"):
        return f">= {FASTER_TOOLS}x", statistics.median(c.faster for c in group) >= FASTER_TOOLS
    if (name, peer) == (TOOLS, "serial"):
        return f">= {FASTER_TOOLS}x", statistics.median(c.faster_than_serial for c in group) >= FASTER_TOOLS
    return "", None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--seeds", type=int, default=5, help="draws of lengths and times (5)")
    parser.add_argument("--repeats", type=int, default=7, help="rollouts timed for the loop's own cost (7)")
    parser.add_argument("--profile", metavar="ENV", help="print what takes longest in a rollout of it, and end")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.repeats < 1:
        parser.error(f"got --seeds {options.seeds} and --repeats {options.repeats}; expected 1 or more")
    if options.profile:
        profile(options.profile, 12)
        return 0
    compared: dict[str, list[Compared]] = {}
    for seed in range(options.seeds):
        for name, case in cases(seed).items():
            compared.setdefault(name, []).append(simulate(case))
    real = [in_real_time(real_case(seed)) for seed in range(min(options.seeds, 3))]
    print(table([HEADER, *(row for group in (*compared.values(), real) for c in group for row in c.rows())]))
    print("", *(summary(name, group) for name, group in compared.items()), summary("wall clock", real), sep="\n")
    goal = next(iter(compared.values()))
    step = statistics.median(c.free.seconds for c in goal)
    costs = [cost(name, options.repeats) for name in ("plan_path", "sokoban")]
    print("", *(c.line(step) for c in costs), *(c.line() for c in token_costs(options.repeats)), sep="\n")
    try:
        trl = beside_trl(range(min(options.seeds, 3)))
        print(*(each.line() for each in trl), sep="\n")
    except ImportError as error:
        trl = None
        print(f"TRL's loop was not measured: {error} (pip install '.[trl]')")
    saved = figures(compared, real, costs, step, trl)
    judged = [figure for figure in saved if figure.met is not None]
    print("", *(f"{each.name}, {each.goal}: {'met' if each.met else 'MISSED'}" for each in judged), sep="\n")
    write(options.json, saved)
    return int(options.strict and not all(figure.met for figure in judged))


if __name__ == "__main__":
    sys.exit(main())
