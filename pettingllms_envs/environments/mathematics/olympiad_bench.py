"""OlympiadBench: problems of mathematical olympiads, whose answers are numbers, expressions, tuples or intervals.

The task, its rewards and outcome: `rules`. Some problems have several answers, of which
none may be missing, a unit, which may be left out, or a numeric error that is allowed.
Data: the olympiad-like problems of this package, in three splits, or with `data` OlympiadBench itself
(`Hothan/OlympiadBench@<commit>`, OE_TO_maths_en_COMP), which has the split `test` only.
Source: He et al. 2024, arXiv:2402.14008.
"""

from pettingllms_envs.environments.mathematics.rules import Answering


class OlympiadBench(Answering):
    """The task; its settings are those of `Answering`."""

    __slots__ = ()
    name, own, benchmark = "olympiad_bench", "own:olympiad_bench", "OlympiadBench"
    remedy = "pettingllms data prepare Hothan/OlympiadBench and --set data=Hothan__OlympiadBench for it"
