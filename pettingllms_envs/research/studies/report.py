"""The report of a study, as blocks of `pettingllms_envs.reports`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from pettingllms_envs.reports.blocks import Block, Bold, Heading, Items, Paragraph, Picture, Table
from pettingllms_envs.research.studies import analysis, curves, power
from pettingllms_envs.research.studies.results import CellResult, label


def of_folder(folder: Path) -> list[Block]:
    """The report of a folder of results.

    Raises:
        ValueError: It has no study, or a damaged file.
    """
    return list(blocks(analysis.read_results(folder)))


def blocks(results: analysis.StudyResults) -> Iterator[Block]:
    """The report from its title to the tuning."""
    outline = results.outline
    more = [seed for seed in outline.most_seeds if seed not in outline.seeds]
    of_primary = f", and {_seeds(more)} of the methods that primary comparisons name" if more else ""
    yield Heading(f"Study {outline.name}", 1)
    yield Paragraph(
        f"Success on {outline.num_instances} instances of the split {outline.split}, "
        f"{_seeds(outline.seeds)}{of_primary}. Each run was trained until {outline.tokens:,} tokens were "
        "generated."
    )
    for note in outline.notes:
        yield Paragraph(note)
    if missing := results.missing():
        yield Paragraph(
            f"{len(missing)} of {len(outline.cells())} runs are not finished, {missing[0]} among them. What is "
            "shown is of the others."
        )
    if broken := analysis.inconsistencies(results):
        yield Items(broken)
    for kind in KINDS:
        if getattr(outline, kind):
            yield Heading(f"{kind.capitalize()} comparisons", 2)
            yield from _named(results, kind)
    for environment in outline.methods:
        yield Heading(environment, 2)
        yield from _environment(results, environment)
    yield Heading("What it can show", 2)
    for sentence in power.sentences_of(outline):
        yield Paragraph(sentence)
    if results.fidelity:
        yield Heading("Credit fidelity", 2)
        yield from _fidelity(results)
    if outline.tuning is not None:
        yield Heading("Tuning", 2)
        yield from _tuning(results)


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


HOW = (
    "The first is Student's, over the seeds' paired differences; the second a bootstrap over seeds and instances; p "
    "is exact, by flipped signs. A verdict needs both intervals to exclude 0."
)
KINDS = ("primary", "secondary")
COLUMNS = ("difference", "over seeds", "over seeds and instances", "p", "each seed", "verdict")


def _named(results: analysis.StudyResults, kind: str) -> Iterator[Block]:
    """What the study was made for, or else was named beforehand."""
    outline = results.outline
    comparisons = getattr(outline, kind)
    found, named = analysis.named_differences(results, comparisons), len(comparisons)
    corrected = f", so that those of all {named} hold together with 95% (Bonferroni)" if named > 1 else ""
    yield Paragraph(
        "One method minus another, in points of success, as named in the digest of each of these runs. "
        f"Intervals are at {100 * (1 - 0.05 / named):.1f}%{corrected}. {HOW}"
    )
    if found:
        rows = [[each.environment, f"{each.first} minus {each.method}", *_difference_row(each)] for each in found]
        yield Table(("environment", "methods", *COLUMNS), rows, left=(1, 7))
        yield Items([f"{each.environment}: {_in_words(each)}" for each in found])
    wanted = [
        set.intersection(*(set(outline.seeds_of(each["environment"], method)) for method in each["methods"]))
        for each in comparisons
    ]
    done = {(each.environment, each.first, each.method): len(each.seeds) for each in found}
    num_open = sum(
        done.get((each["environment"], *each["methods"]), 0) < len(seeds) > 1
        for each, seeds in zip(comparisons, wanted, strict=True)
    )
    if num_few := sum(len(seeds) < 2 for seeds in wanted):
        yield Paragraph(f"Too few seeds for {_comparisons(num_few, f'{kind} ')}: both methods need the same two.")
    if num_open:
        yield Paragraph(
            f"Not all seeds of {_comparisons(num_open, f'{kind} ')} are finished; before that no verdict is final."
        )


def _comparisons(number: int, kind: str = "") -> str:
    return f"{number} {kind}comparison{'' if number == 1 else 's'}"


def _environment(results: analysis.StudyResults, environment: str) -> Iterator[Block]:
    outline = results.outline
    finished = {
        method: results.evaluation[environment, method]
        for method in outline.methods[environment]
        if (environment, method) in results.evaluation
    }
    results_here = [result for own in finished.values() for result in own]
    is_known = all(result.cpu_seconds for result in results_here)
    seconds = "CPU seconds" if is_known else "seconds"
    used = ("instances", "uses of a token") if any(result.uses for result in results_here) else ()
    rows = [_method_row(method, own, of_cpu=is_known, used=bool(used)) for method, own in finished.items()]
    if not rows:
        yield Paragraph("No run is finished.")
        return
    head = ("method", "success", "each seed", "tokens", "steps", *used, seconds, "setting")
    yield Table(head, rows, left=(len(head) - 1,))
    found = analysis.differences(results, environment)
    columns = COLUMNS[:-1] if outline.secondary else COLUMNS
    if found:
        first, confidence = outline.reference, f"{100 * found[0].comparison.confidence:.1f}%"
        if outline.secondary:
            yield Paragraph(
                f"{first} minus the others that were not named beforehand, in points of success, with intervals at "
                f"{confidence} each and no verdict. {HOW}"
            )
        elif outline.primary:
            yield Paragraph(
                f"{first} minus the others, in points of success: exploratory, as these comparisons are not primary. "
                f"Intervals are at {confidence} each and not corrected for their number, so that some verdicts may be "
                f"chance. {HOW}"
            )
        else:
            yield Paragraph(
                f"{first} minus the others, in points of success. Intervals are at {confidence}, so that those of all "
                f"{_comparisons(outline.num_comparisons)} hold together with 95% (Bonferroni). {HOW}"
            )
        rows = [[each.method, *_difference_row(each)[: len(columns)]] for each in found]
        yield Table(("method", *columns), rows, left=(6,))
        exploratory = "Exploratory: " if outline.primary else ""
        if not outline.secondary:
            yield Items([f"{exploratory}{_in_words(difference)}" for difference in found])
    elif any(not outline.is_named(environment, outline.reference, each) for each in outline.compared[environment]):
        yield Paragraph(f"Too few seeds are finished to compare {outline.reference} with others; two are needed.")
    if has_curves(results, environment):
        yield Picture(
            name=f"curves-{environment}",
            about=f"Success of each method in {environment} over the tokens generated in training",
            caption=curves.CAPTION,
            draw=partial(curves.draw, results, environment),
        )


def has_curves(results: analysis.StudyResults, environment: str) -> bool:
    """Whether runs of the environment were evaluated during training."""
    names = results.outline.methods[environment]
    return any(result.curve for name in names for result in results.evaluation.get((environment, name), ()))


def _method_row(method: str, results: Sequence[CellResult], *, of_cpu: bool, used: bool) -> list[str]:
    known = dict.fromkeys(r.guesser or label(r.cell.setting) for r in results if r.guesser or r.cell.setting)
    is_trained = any(result.steps for result in results)
    counts = [
        (r.tokens, r.steps, *((r.rows, r.uses) if used else ()), r.cpu_seconds if of_cpu else r.seconds)
        for r in results
    ]
    means = [fmean(values) for values in zip(*counts, strict=True)]
    digits = [0, 0, *((0, 1) if used else ()), 0]
    return [
        method,
        f"{100 * fmean(result.rate for result in results):.1f}%",
        ", ".join(f"{100 * result.rate:.1f}" for result in results),
        *(f"{mean:,.{n}f}" if is_trained else "" for mean, n in zip(means, digits, strict=True)),
        "; ".join(known),
    ]


def _difference_row(difference: analysis.Difference) -> list[str]:
    """A text for each of `COLUMNS`."""
    comparison = difference.comparison
    return [
        f"{100 * comparison.mean:+.1f}",
        _interval(comparison.student),
        _interval(comparison.bootstrap),
        f"{comparison.p:.4f}",
        ", ".join(f"{100 * value:+.1f}" for value in comparison.by_seed),
        comparison.verdict,
    ]


def _interval(ends: tuple[float, float]) -> str:
    """In points; Student's interval of few seeds may go beyond the range of a difference, and is cut off there."""
    return f"[{100 * max(ends[0], -1.0):+.1f}, {100 * min(ends[1], 1.0):+.1f}]"


def _in_words(difference: analysis.Difference) -> str:
    comparison, reference, method = difference.comparison, difference.first, difference.method
    low = min(comparison.student[0], comparison.bootstrap[0])
    high = max(comparison.student[1], comparison.bootstrap[1])
    size = f"{100 * comparison.mean:+.1f} points {_interval((low, high))}"
    if comparison.verdict != "cannot tell":
        return f"{reference} does {comparison.verdict} than {method}: {size}."
    if difference.needed is None or difference.needed <= len(difference.seeds):  # more instances might
        return f"Cannot tell whether {reference} or {method} does better: {size}."
    return (
        f"Cannot tell whether {reference} or {method} does better: {size} over {len(difference.seeds)} seeds. If the "
        f"difference is real, about {difference.needed:,} seeds would show it."
    )


def _fidelity(results: analysis.StudyResults) -> Iterator[Block]:
    yield Paragraph(
        "Rank correlation of each method's advantages with counterfactual ones, which are estimated by playing every "
        "candidate to the end several times, with the policies that training starts from and with the rewards of "
        "the method. The ceiling is what exact ones would reach: the square root of the correlation of two such "
        "estimates. Intervals are at 95%, over instances."
    )
    rows = []
    for environment, methods in results.outline.methods.items():
        for method in methods:
            if (found := results.fidelity.get((environment, method))) is not None:
                interval = "" if found.interval is None else "[{:+.2f}, {:+.2f}]".format(*found.interval)
                row = [
                    environment,
                    method,
                    "all advantages equal" if found.correlation is None else f"{found.correlation:+.2f}",
                    interval,
                    "" if found.ceiling is None else f"{found.ceiling:+.2f}",
                    *map(str, (found.num_decisions, found.num_candidates, found.num_continuations)),
                ]
                rows.append(row)
    head = ("environment", "method", "correlation", "interval", "ceiling", "decisions", "candidates", "continuations")
    yield Table(head, rows, left=(1,))


def _tuning(results: analysis.StudyResults) -> Iterator[Block]:
    outline = results.outline
    tuning = outline.tuning
    assert tuning is not None
    more = [seed for seed in tuning.get("primary_seeds", ()) if seed not in tuning["seeds"]]
    of_primary = f", and {_seeds(more)} of the methods that primary comparisons name" if more else ""
    yield Paragraph(
        f"Mean success on {tuning['num_instances']} instances of the split {tuning['split']}, "
        f"{_seeds(tuning['seeds'])}{of_primary}, {tuning['tokens']:,} tokens. The best setting of each method, in "
        "bold, is the one that was evaluated; these runs are no part of the evaluation."
    )
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    at_ends: dict[str, None] = {}
    for environment, methods in outline.methods.items():
        for method in methods:
            settings = outline.settings_of(method)
            own = {setting: results.tuning.get((environment, method, setting), ()) for setting in settings}
            if not any(own.values()):
                continue
            place = analysis.tuned(results, environment, method)
            best = None if place is None else settings[place]
            numbers = [_numbers(each) for each in settings]
            for name, value in () if place is None else numbers[place].items():
                tried = {each[name] for each in numbers if name in each}
                if len(tried) > 2 and value in (min(tried), max(tried)):
                    at_ends.setdefault(f"{method} in {environment}")
            rates = [_rate(found, each == best) for each, found in own.items()]
            tables.setdefault((*settings,), []).append([environment, method, *rates])
    for labels, rows in tables.items():
        yield Table(("environment", "method", *labels), rows, left=(1,))
    if at_ends:
        yield Paragraph(
            f"The best setting has the first or the last value that was tried for {', '.join(at_ends)}; a better one "
            "may lie beyond it."
        )


def _numbers(setting: str) -> dict[str, float]:
    """Of a setting's label, the fields that are numbers."""
    fields = [part.partition("=") for part in setting.split(",")]
    digits = [value.lstrip("-").replace(".", "", 1).replace("e-", "", 1) for _, _, value in fields]
    return {name: float(value) for (name, _, value), each in zip(fields, digits, strict=True) if each.isdigit()}


def _rate(results: Sequence[CellResult], is_chosen: bool) -> str:
    if not results:
        return "-"
    rate = f"{100 * fmean(result.rate for result in results):.1f}%"
    return Bold(rate) if is_chosen else rate
