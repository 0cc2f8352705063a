"""The table of known data sets on the Hub: their ids and layouts, the files of each split, and missing columns.

A set is recognized by its id, and a local file by its name, if that is the id with "__" for "/", as in
`codeparrot__apps__train.jsonl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pettingllms_envs.datasets.rows import Row


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
        layout: Argument of `columns.find_layout`.
        config: The configuration, if it has several; else `""`.
        files: For each split the patterns of its files (`fnmatch`, of the whole path). If a split has files in several
            formats, those of the first matching pattern are read.
        gaps: Columns that its rows lack and other copies have.
    """

    id: str
    layout: str
    config: str = ""
    files: Mapping[str, tuple[str, ...]]
    gaps: Row = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """Name of a file with its rows, up to the split."""
        return "__".join(filter(None, (self.id.replace("/", "__"), self.config)))


_ANY = ("*.parquet", "*.jsonl", "*.json")

KNOWN = (
    KnownSet(id="codeparrot/apps", layout="apps", files={"train": ("train.jsonl",), "test": ("test.jsonl",)}),
    KnownSet(
        id="deepmind/code_contests",
        layout="code_contests",
        files={
            "train": ("data/train-*.parquet",),
            "validation": ("data/valid-*.parquet", "data/validation-*.parquet"),
            "test": ("data/test-*.parquet",),
        },
    ),
    KnownSet(
        id="livecodebench/code_generation_lite",
        layout="live_code_bench",
        files={"test": ("test*.jsonl",)},
    ),
    KnownSet(id="HuggingFaceH4/aime_2024", layout="aime", files={"test": _ANY}, gaps={"year": "2024"}),
    KnownSet(id="Maxwell-Jia/AIME_2024", layout="aime", files={"test": _ANY}, gaps={"year": "2024"}),
    KnownSet(id="math-ai/aime24", layout="aime", files={"test": _ANY}, gaps={"year": "2024"}),
    KnownSet(id="math-ai/aime25", layout="aime", files={"test": _ANY}, gaps={"year": "2025"}),
    KnownSet(
        id="opencompass/AIME2025",
        layout="aime",
        config="AIME2025-I",
        files={"test": ("*[-_]I.jsonl", "*[-_]I.parquet", "*[-_]I/*")},
        gaps={"year": "2025"},
    ),
    KnownSet(
        id="opencompass/AIME2025",
        layout="aime",
        config="AIME2025-II",
        files={"test": ("*[-_]II.jsonl", "*[-_]II.parquet", "*[-_]II/*")},
        gaps={"year": "2025"},
    ),
    KnownSet(id="MathArena/aime_2025", layout="aime", files={"test": _ANY}, gaps={"year": "2025"}),
    KnownSet(
        id="Hothan/OlympiadBench",
        layout="olympiad_bench",
        config="OE_TO_maths_en_COMP",
        files={"test": ("*OE_TO_maths_en_COMP*.parquet", "*OE_TO_maths_en_COMP*.json*")},
    ),
    KnownSet(id="POLARIS-Project/Polaris-Dataset-53K", layout="polaris", files={"train": _ANY}),
    KnownSet(id="BytedTsinghua-SIA/DAPO-Math-17k", layout="dapo", files={"train": _ANY}),
    KnownSet(
        id="openai/gsm8k",
        layout="gsm8k",
        config="main",
        files={split: (f"main/{split}-*.parquet", f"{split}.jsonl") for split in ("train", "test")},
    ),
    KnownSet(id="agentica-org/DeepScaleR-Preview-Dataset", layout="math", files={"train": _ANY}),
    KnownSet(id="gneubig/aime-1983-2024", layout="math:Question,Answer", files={"train": ("*.csv", *_ANY)}),
    KnownSet(
        id="HuggingFaceH4/MATH-500", layout="math", files={"test": ("test*.jsonl", "*test*.parquet", "*.parquet")}
    ),
    KnownSet(
        id="hotpotqa/hotpot_qa",
        layout="hotpot_qa",
        config="distractor",
        files={"train": ("distractor/train-*.parquet",), "validation": ("distractor/validation-*.parquet",)},
    ),
    *(
        KnownSet(
            id=id,
            layout="two_wiki",
            files={"train": ("*train*.parquet",), "validation": ("*validation*.parquet", "*dev*.parquet")},
        )
        for id in ("xanhho/2WikiMultihopQA", "framolfese/2WikiMultihopQA")
    ),
    *(
        KnownSet(
            id=id,
            layout="musique",
            files={"train": ("musique_ans_*_train.jsonl",), "validation": ("musique_ans_*_dev.jsonl",)},
        )
        for id in ("dgslibisey/MuSiQue", "bdsaglam/musique")
    ),
    *(
        KnownSet(
            id="RUC-NLPIR/FlashRAG_datasets",
            layout="flash_rag",
            config=config,
            files={split: (f"{config}/{'dev' if split == 'validation' else split}.jsonl",) for split in splits},
        )
        for config, splits in {
            "nq": ("train", "validation", "test"),
            "triviaqa": ("train", "validation", "test"),
            "popqa": ("test",),
            "2wikimultihopqa": ("train", "validation"),
            "musique": ("train", "validation"),
        }.items()
    ),
    KnownSet(
        id="YuxuanLi1225/HiddenBench",
        layout="hidden_bench",
        files={"test": ("*benchmark.json", "*.json", "*.parquet")},
    ),
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
