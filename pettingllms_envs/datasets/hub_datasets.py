"""The table of known data sets on the Hub: their ids and layouts, the files of each split, and missing columns.

A set is recognized by its id, and a local file by its name, if that is the id with "__" for "/", as in
`codeparrot__apps__train.jsonl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pettingllms_envs.datasets.rows import DataRow


SPLIT_NAMES = {
    "train": "train",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}
"""Names of splits in the Hub's sets, and this package's name for each."""
_SEPARATORS = str.maketrans(".-", "__")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSet:
    """A data set of the Hub.

    Args:
        config: The configuration, if it has several; else `""`.
        files: For each split the patterns of its files (`fnmatch`, of the whole path). If a split has files in several
            formats, those of the first matching pattern are read.
        gaps: Columns that its rows lack and other copies have.
    """

    id: str
    layout: str
    config: str = ""
    files: Mapping[str, tuple[str, ...]]
    gaps: DataRow = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """Name of a file with its rows, up to the split."""
        return "__".join(filter(None, (self.id.replace("/", "__"), self.config)))


_ANY = ("*.parquet", "*.jsonl", "*.json")
_Patterns = Mapping[str, str | tuple[str, ...]]


def _known(id: str, layout: str, files: _Patterns, config: str = "", year: str = "") -> KnownSet:
    """A set with the patterns of each split; `year` is that of an exam whose rows do not say it."""
    patterns = {split: (each,) if isinstance(each, str) else each for split, each in files.items()}
    return KnownSet(id=id, layout=layout, config=config, files=patterns, gaps={"year": year} if year else {})


_VALID = ("data/valid-*.parquet", "data/validation-*.parquet")
_CONTESTS: _Patterns = {"train": "data/train-*.parquet", "validation": _VALID, "test": "data/test-*.parquet"}
_OE = "OE_TO_maths_en_COMP"
_GSM8K = {split: (f"main/{split}-*.parquet", f"{split}.jsonl") for split in ("train", "test")}
_MATH_500 = ("test*.jsonl", "*test*.parquet", "*.parquet")
_DISTRACTOR = {split: f"distractor/{split}-*.parquet" for split in ("train", "validation")}
_TWO_WIKI: _Patterns = {"train": "*train*.parquet", "validation": ("*validation*.parquet", "*dev*.parquet")}
_MUSIQUE = {"train": "musique_ans_*_train.jsonl", "validation": "musique_ans_*_dev.jsonl"}
_LEARNT = {"train": "train", "validation": "dev"}
_FLASH_RAG = {
    **{name: {**_LEARNT, "test": "test"} for name in ("nq", "triviaqa")},
    "popqa": {"test": "test"},
    **dict.fromkeys(("2wikimultihopqa", "musique"), _LEARNT),
}

KNOWN = (
    _known("codeparrot/apps", "apps", {"train": "train.jsonl", "test": "test.jsonl"}),
    _known("deepmind/code_contests", "code_contests", _CONTESTS),
    _known("livecodebench/code_generation_lite", "live_code_bench", {"test": "test*.jsonl"}),
    _known("HuggingFaceH4/aime_2024", "aime", {"test": _ANY}, year="2024"),
    _known("Maxwell-Jia/AIME_2024", "aime", {"test": _ANY}, year="2024"),
    _known("math-ai/aime24", "aime", {"test": _ANY}, year="2024"),
    _known("math-ai/aime25", "aime", {"test": _ANY}, year="2025"),
    *(
        _known("opencompass/AIME2025", "aime", {"test": (f"{end}.jsonl", f"{end}.parquet", f"{end}/*")}, name, "2025")
        for name, end in (("AIME2025-I", "*[-_]I"), ("AIME2025-II", "*[-_]II"))
    ),
    _known("MathArena/aime_2025", "aime", {"test": _ANY}, year="2025"),
    _known("Hothan/OlympiadBench", "olympiad_bench", {"test": (f"*{_OE}*.parquet", f"*{_OE}*.json*")}, _OE),
    _known("POLARIS-Project/Polaris-Dataset-53K", "polaris", {"train": _ANY}),
    _known("BytedTsinghua-SIA/DAPO-Math-17k", "dapo", {"train": _ANY}),
    _known("openai/gsm8k", "gsm8k", _GSM8K, "main"),
    _known("agentica-org/DeepScaleR-Preview-Dataset", "math", {"train": _ANY}),
    _known("gneubig/aime-1983-2024", "math:Question,Answer", {"train": ("*.csv", *_ANY)}),
    _known("HuggingFaceH4/MATH-500", "math", {"test": _MATH_500}),
    _known("hotpotqa/hotpot_qa", "hotpot_qa", _DISTRACTOR, "distractor"),
    *(_known(id, "two_wiki", _TWO_WIKI) for id in ("xanhho/2WikiMultihopQA", "framolfese/2WikiMultihopQA")),
    *(_known(id, "musique", _MUSIQUE) for id in ("dgslibisey/MuSiQue", "bdsaglam/musique")),
    *(
        _known(
            "RUC-NLPIR/FlashRAG_datasets",
            "flash_rag",
            {split: f"{name}/{file}.jsonl" for split, file in splits.items()},
            name,
        )
        for name, splits in _FLASH_RAG.items()
    ),
    _known("xlangai/spider", "spider", {split: f"spider/{split}-*.parquet" for split in ("train", "validation")}),
    _known("micpst/bird", "bird", {"validation": "data/dev-*.parquet"}),
    _known("seeklhy/SynSQL-2.5M", "synsql", {"train": _ANY}),
    _known("YuxuanLi1225/HiddenBench", "hidden_bench", {"test": ("*benchmark.json", "*.json", "*.parquet")}),
)


def known_sets(id: str) -> list[KnownSet]:
    """The known set of this id, in all its configurations; none if the id is unknown.

    Args:
        id: With or without a configuration, as in `"opencompass/AIME2025:AIME2025-I"`; of a set that has none the name
            of a file or folder, as in `"livecodebench/code_generation_lite:test6"`.
    """
    name, _, config = id.partition(":")
    return [known for known in KNOWN if known.id == name and (config in ("", known.config) or not known.config)]


def by_file_name(stem: str) -> tuple[KnownSet, str] | None:
    """The known set and the split of a file, by the file's name without its ending.

    The split is `""` if the name has none.
    """
    for known in sorted(KNOWN, key=lambda known: -len(known.stem)):
        if stem == known.stem or stem.startswith(f"{known.stem}__"):
            return known, split_in(stem)
    return None


def split_in(stem: str) -> str:
    """The split with which a file's name ends, as in `mine_train` or LiveCodeBench's `test6`; `""` if none."""
    return SPLIT_NAMES.get(stem.translate(_SEPARATORS).rpartition("_")[2].lower().rstrip("0123456789"), "")
