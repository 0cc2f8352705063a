"""Math: any data set with a problem and its answer in each row.

The task, its rewards and outcome: `rules`.
Data: the problems of this package, from primary school to competitions, in three splits; or with `data` such sets as
Polaris (`POLARIS-Project/Polaris-Dataset-53K`), DAPO (`BytedTsinghua-SIA/DAPO-Math-17k`), DeepScaleR and MATH. A set
that has a training split only is divided by digests of the statements, so that no problem is in two splits.
"""

from pettingllms_envs.environments.mathematics.rules import Answering


class Math(Answering):
    """The task; its settings are those of `Answering`."""

    __slots__ = ()
    name, own, benchmark = "math", "own:polaris", "MATH or Polaris"
    remedy = "pettingllms data prepare HuggingFaceH4/MATH-500 and --set data=HuggingFaceH4__MATH-500 for MATH-500"
