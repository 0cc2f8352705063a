"""The command `pettingllms study`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pettingllms_envs.research.studies.results import save_outline
from pettingllms_trl.cli.__main__ import refuse_missing, refused
from pettingllms_trl.config_files import read
from pettingllms_trl.research.study.plans.plan import selected
from pettingllms_trl.research.study.plans.study_file import read_study
from pettingllms_trl.research.study.runner import Runner
from pettingllms_trl.research.study.verification import verify


DESCRIPTION = """Compare training methods over several seeds, at equal tokens, with tuned settings.

The results are read by `pettingllms report`.

The same command goes on where it was stopped or killed: finished runs are skipped, started ones resume from their
checkpoint. docs/studies.md describes the file.

--verify ends with status 0 if the rerun is equal in every digit, 3 if its success differs within noise (the 95%
interval of the difference, paired by instances, contains 0), and 1 if it differs by more or fails.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(
        prog="pettingllms study", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("study", type=Path, metavar="STUDY", help="a YAML file")
    made.add_argument("--work", type=Path, help="models, checkpoints and logs (outputs/study/NAME)")
    made.add_argument("--results", type=Path, help="one small file for each finished run (WORK/results)")
    made.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="runs at once, each in a process with one thread, which a run repeats exactly with (1)",
    )
    made.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="run these alone, such as tuning, plan_path/at_grpo, or evaluation/10?; may be given several times",
    )
    made.add_argument("--minutes", type=float, help="start no further run after this time")
    made.add_argument("--fidelity", action="store_true", help="measure credit fidelity instead of training")
    made.add_argument("--show", action="store_true", help="print the file with all that it inherits, and end")
    made.add_argument(
        "--dry-run", action="store_true", help="check the study, print its runs, their time and what it can show"
    )
    made.add_argument(
        "--verify", metavar="CELL", help="rerun one finished run, such as evaluation/plan_path/at_grpo/1, and compare"
    )
    return made


def study(argv: Sequence[str]) -> int:
    """`pettingllms study`: run what is missing. Returns the exit status."""
    options = parser().parse_args(argv)
    try:
        import fcntl  # noqa: F401  # as runs do later: where it is missing, the command says so at once

        return _study(options)
    except ModuleNotFoundError as error:
        return refuse_missing("study", error)
    except (ValueError, TypeError, OSError, ImportError) as error:
        return refused(str(error))


def _study(options: argparse.Namespace) -> int:
    plan, resolved = read_study(options.study), read(options.study).text()
    if options.show:
        print(resolved, end="")
        return 0
    if options.jobs < 1:
        raise ValueError(f"--jobs is {options.jobs}; expected 1 or more.")
    work = (options.work or Path("outputs/study") / plan.name).absolute()
    results = (options.results or work / "results").absolute()
    if options.verify is not None:
        return verify(options.verify, results, work)
    trained = [*plan.tuning_cells(), *plan.outline().cells()]
    everything = plan.fidelity_cells() if options.fidelity else trained
    cells = list(selected(everything, options.only))
    if not cells:
        raise ValueError(f"--only is {options.only}; expected parts of a run's name, such as {everything[0].name}.")
    runner = Runner(plan, work, results)
    finished = runner.finished([*trained, *plan.fidelity_cells()])  # all of which the report shows
    runner.say(cells, finished)
    runner.check(cells)
    if options.dry_run:
        for cell in cells:
            print(f"{'finished' if cell.name in finished else 'to run':9}{cell.name}")
        return 0
    save_outline(plan.outline(), results)
    (results / "study.yaml").write_text(resolved, "utf-8")
    return runner.run(cells, finished, jobs=options.jobs, minutes=options.minutes)


if __name__ == "__main__":
    sys.exit(study(sys.argv[1:]))
