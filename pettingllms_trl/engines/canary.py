"""The canary: detects an engine that samples from other weights than the trainer's.

Every few optimizer steps the engine and the trainer score the same fixed text. Were both exact, their
log-probabilities would be equal. Rounding makes them differ, in bfloat16 by more than an update at a small learning
rate changes them, so two questions are asked of the T differences:

| question                                                      | finds                                               |
|---------------------------------------------------------------|-----------------------------------------------------|
| Are they larger than rounding makes them?                     | other weights: of another policy, of steps ago      |
| Since they last agreed, has the engine moved as the trainer   | an engine that stays behind: the trainer's movement |
| has, or has it stayed where it was?                           | grows with every step, rounding does not            |

How much rounding makes is measured at the start of the run, when both have the weights that they were loaded with.

The trainer's movement in bfloat16 has rounding of its own, which an engine with the same weights does not share. So
the direction of the movement is taken from a pass in float32, where the trainer's weights are in float32; where they
are not, movements are looked at only when they are well above rounding.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image as Picture

from pettingllms_envs.observations import Image
from pettingllms_trl.engines.factory import EngineSet
from pettingllms_trl.engines.weight_store import StaleWeights, WeightsVersion
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.processes.on_all import on_all
from pettingllms_trl.records import Prompt, Scored


Array: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]

TEXT = """\
The quick brown fox jumps over the lazy dog. Two agents share a board of 7 rows and 5 columns: the first one plans, the
second one checks every step of the plan and answers "yes", "no" or a better move such as [up, up, left, 3].
def area(a, b): return a * b
What is 12 + 30? It is 42, since 12 + 30 = 42. Let me think again: if x > 0 then x * x > 0 as well, so the claim holds
for every x but 0. Then the door opened, rain blew in, and nobody in the room could say who had come; they looked at
each other, and at the clock, which had stopped at a quarter past nine.
SELECT name FROM cities WHERE population > 100000 ORDER BY name;
Il faut cultiver notre jardin. Der Rest ist Schweigen."""
"""The scored text: prose, reasoning, code, so that any training changes some of its log-probabilities."""
MAX_TOKENS = 256
"""Of the text; those of a picture come before it."""


def picture() -> Image:
    """Scored before the text by policies that are shown images. Processors resize it, some of them in other ways."""
    rows, columns = np.indices((76, 100), dtype=np.uint8)
    file = io.BytesIO()
    Picture.fromarray(np.stack([3 * rows, 2 * columns, rows * columns], axis=-1)).save(file, "PNG")
    return Image(file.getvalue(), "a pattern")


SMALLEST_NOISE = 1e-6
"""Least noise in nats between two float32 programs; it is measured as 0 if both start with adapters of zeros."""
LARGEST_AT_START = {"float32": 1e-4, "other": 0.5}
"""Largest root mean square difference in nats at the start; beyond it engine and trainer have different models."""
MARGIN = 8.0
"""Largest ratio of a difference to the noise measured at the start."""
CLEAR = 3.0
"""Least ratio of a movement to the noise for it to be tested, if its direction is not known in float32."""
CERTAIN = 6.0
"""Standard errors from which an engine counts as stale."""
BEHIND = 0.25
"""Share of the trainer's movement that an engine with the same weights may miss: rounding can look like movement."""


@dataclass(frozen=True, slots=True, eq=False)
class Own:
    """The trainer's log-probabilities of a text.

    Args:
        working: (T,) in the precision of the run.
        exact: (T,) the same in float32. `None`: the weights themselves have less.
    """

    working: Array
    exact: Array | None

    def before(self, length: int) -> Own:
        """The log-probabilities of the first tokens only."""
        return Own(self.working[:length], None if self.exact is None else self.exact[:length])


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """A comparison in which engine and trainer had the same weights.

    Args:
        engine: (T,) the engine's.
        noise: Nats, root mean square: what rounding changed at the start of the run.
        scale: Root mean square of the log-probabilities that `noise` was measured on.
    """

    version: int
    own: Own
    engine: Array
    noise: float
    scale: float


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The result of a comparison.

    Args:
        difference: Root mean square of engine - trainer, in nats.
        moved: Root mean square of the trainer's movement since both last agreed.
        followed: Share of that movement which the engine made, too: 1 with the same weights, 0 if it did not change.
        certainty: Standard errors by which `followed` is below 1.
        is_stale: Whether the engine does not have the trainer's weights.
    """

    difference: float
    tolerance: float
    moved: float
    followed: float
    certainty: float
    is_stale: bool
    agreement: Agreement


def begin(version: int, own: Own, engine: Array, *, largest: float) -> Comparison:
    """The first comparison, which measures the tolerance of those that follow.

    Args:
        engine: (T,) the engine's.
        largest: The difference beyond which they cannot have the same weights.
    """
    difference = _rms(engine - own.working)
    noise = max(math.sqrt(2) * difference, SMALLEST_NOISE)  # of one comparison beside another
    agreement = Agreement(version, own, engine, noise, _rms(own.working))
    return Comparison(difference, largest, 0.0, 1.0, 0.0, not difference <= largest, agreement)


def compare(last: Agreement, version: int, own: Own, engine: Array) -> Comparison:
    """A later comparison, with the engine's log-probabilities (T,).

    What the engine's movement since `last` lacks of the trainer's is projected on the direction in which the weights
    have moved the log-probabilities. Rounding knows nothing of that direction: of T tokens it leaves there what it
    does to one, while the movement is as long as the root of T of them. That is how steps add up, each of which moves
    a log-probability by less than it is rounded.
    """
    difference = _rms(engine - own.working)
    growth = max(1.0, _rms(own.working) / last.scale)  # larger numbers are rounded by more
    tolerance = MARGIN * last.noise * growth
    movement = own.working - last.own.working
    lag = movement - (engine - last.engine)
    is_exact = own.exact is not None and last.own.exact is not None
    way = movement if own.exact is None or last.own.exact is None else own.exact - last.own.exact
    length = float(np.linalg.norm(way))
    direction = way / length if length else way
    missing, made = float(lag @ direction), float(movement @ direction)
    noise = max(last.noise * growth, _rms(lag - missing * direction))
    if not is_exact and _rms(movement) < CLEAR * noise:
        missing = made = 0.0  # the trainer's own rounding would look like movement that the engine lacks
    behind = missing / made if made else 0.0
    stays_behind = behind > BEHIND and missing > CERTAIN * noise
    is_stale = stays_behind or not difference <= tolerance  # nor is NaN
    agrees = not is_stale and BEHIND * made > CERTAIN * noise  # had it stayed behind, that would have been seen
    return Comparison(
        difference=difference,
        tolerance=tolerance,
        moved=_rms(way),
        followed=1.0 - behind,
        certainty=missing / noise,
        is_stale=is_stale,
        agreement=Agreement(version, own, engine, last.noise, last.scale) if agrees else last,
    )


class Canary:
    """Compares the engines of a run with its trainer, and warns or raises if they have other weights.

    Args:
        text_of: Returns the text that a policy scores, with its ids, given its name.
        score: Returns the trainer's log-probability of each token but the first, given a policy's name and the text.
        every: Optimizer steps from one comparison to the next.
        largest_at_start: See `begin`.
    """

    def __init__(
        self,
        engines: EngineSet,
        policies: dict[str, Policy],
        *,
        text_of: Callable[[str], Prompt],
        score: Callable[[str, Prompt], Own],
        action: Literal["stop", "warn"],
        every: int,
        largest_at_start: float,
    ) -> None:
        self._engines, self._policies = engines, policies
        self._text_of, self._score = text_of, score
        self._action, self._every, self._largest = action, every, largest_at_start
        self._compared: dict[str, WeightsVersion] = {}
        self._agreements: dict[tuple[str, str], Agreement] = {}

    def check(self, version: WeightsVersion, step: int) -> dict[str, float]:
        """Compare the policies that are due. Call it only while engines are awake and have no requests.

        Every process compares its own engines, the main process those that all share; all call it at the same point.

        Returns:
            The root mean square of the differences in nats, for each policy that was compared; of several processes
            the largest.

        Raises:
            StaleWeights: An engine has other weights, and `action` is `"stop"`.
            RuntimeError: So has one of another process.
        """
        due = [name for name in self._engines.served if self._is_due(name, version)]
        if not due:
            return {}
        texts = {name: self._text_of(name) for name in due}
        # All of them before any engine is asked: sharded weights are gathered for it, so that no process may be away.
        own = {name: self._score(name, text) for name, text in texts.items()}
        found = on_all(lambda: self._compare_all(texts, own, version, step))
        return {name: max(differences[name] for differences in found) for name in due}

    def _compare_all(
        self, texts: Mapping[str, Prompt], of_trainer: Mapping[str, Own], version: WeightsVersion, step: int
    ) -> dict[str, float]:
        differences = dict.fromkeys(texts, 0.0)
        # All of them before any is found stale: processes that share an engine score together.
        answers = {name: self._engines.score(name, text) for name, text in texts.items()}
        for name in texts:
            self._compared[name] = version
            own = of_trainer[name]
            for scored in answers[name]:
                found = self._compare(name, scored, own.before(len(scored.logprobs)), version)
                differences[name] = max(differences[name], found.difference)
                if found.is_stale:
                    self._report(name, scored, found, version, step)
        return differences

    def _is_due(self, name: str, version: WeightsVersion) -> bool:
        before, policy = self._compared.get(name), self._policies[name]
        if before is None or before.frozen != version.frozen:
            return True
        return policy.is_trained and version.trained - before.trained >= self._every

    def _compare(self, name: str, scored: Scored, own: Own, version: WeightsVersion) -> Comparison:
        engine = np.array(scored.logprobs, dtype=np.float64)
        number = version.of(self._policies[name])
        last = self._agreements.get((name, scored.place))
        if last is None:
            found = begin(number, own, engine, largest=self._largest)
        else:
            found = compare(last, number, own, engine)
        if last is not None or not found.is_stale:  # else there is no agreement to compare with yet
            self._agreements[name, scored.place] = found.agreement
        return found

    def _report(self, name: str, scored: Scored, found: Comparison, version: WeightsVersion, step: int) -> None:
        message = (
            f"step {step}: the engine does not sample from the weights that the trainer holds, those of policy "
            f"{name!r}. The trainer holds version {version.of(self._policies[name])}; the engine ({scored.place}) was "
            f"given version {self._engines.given(name)} and says that it uses {scored.weights!r}. On a fixed text of "
            f"{len(scored.logprobs)} tokens their log-probabilities differ by {found.difference:.2g} nats (root mean "
            f"square), expected at most {found.tolerance:.2g}"
        )
        if found.moved:
            message += (
                f"; since version {found.agreement.version}, when they last agreed, the trainer's moved by "
                f"{found.moved:.2g} and the engine's by {found.followed:.0%} of that, where 100% was expected "
                f"({found.certainty:.0f} standard errors)"
            )
        message += (
            ". What was sampled since then is off-policy. See that nobody else gives weights to the engine, call "
            "trainer.weights_changed() after changing weights by hand, and resume from a checkpoint of before. Where "
            "a policy is shown images, see that trainer and engine make the same pixels of one"
        )
        if self._action == "stop":
            raise StaleWeights(f"{message}; canary='warn' goes on instead.")
        warnings.warn(f"{message}.", stacklevel=2)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
