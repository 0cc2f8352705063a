"""Retrievers: indices in memory rank alike, corpora are read, and a server that fails is a failure."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pettingllms_envs.retrieval.corpora import corpus_digest, corpus_index, passage_of, read_corpus
from pettingllms_envs.retrieval.local import DenseIndex, PassageIndex, SparseIndex, best, digest_of
from pettingllms_envs.retrieval.passages import Passage, Retriever, RetrieverFailed
from pettingllms_envs.retrieval.remote import RemoteRetriever
from retriever_server import documents, retrieving


PASSAGES = (
    Passage("Zulo", "Zulo is a town on the Mara."),
    Passage("Mara", "The Mara is a river. It reaches the sea at Tirel."),
    Passage("", "Kenfe was born in Zulo."),
    Passage("Kenfe", "Kenfe plays chess."),
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file of the passages, in both forms of rows."""
    rows: list[dict[str, str]] = [{"id": "0", "contents": '"Zulo"\nZulo is a town on the Mara.'}]
    rows += [{"title": each.title, "text": each.text} for each in PASSAGES[1:]]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def titles(found: tuple[Passage, ...]) -> list[str]:
    return [each.title for each in found]


@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [([1, 3, 2], 2, [1, 2]), ([1, 1, 2, 1], 3, [2, 0, 1]), ([1], 5, [0]), ([], 2, []), ([2, 1], 0, [])],
)
def test_the_best_come_first_and_ties_in_their_order(scores: list[float], k: int, expected: list[int]) -> None:
    assert best(np.array(scores, dtype=float), k) == expected


@pytest.mark.parametrize("make", [PassageIndex, SparseIndex])
def test_passages_that_share_no_word_with_the_query_are_not_found(make: Any) -> None:
    index = make(PASSAGES)
    assert titles(index.search("Where does the Mara reach the sea?", 2)) == ["Mara", "Zulo"]
    assert titles(index.search("kenfe", 9)) == ["Kenfe", ""]  # in the shorter one it is twice
    assert index.search("horse", 3) == index.search("", 3) == index.search("Mara", 0) == ()
    assert isinstance(index, Retriever)
    assert index.digest == digest_of(PASSAGES)


def test_bm25s_ranks_as_bm25_of_our_own() -> None:
    rng = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    passages = [Passage(rng.choice(words), " ".join(rng.choices(words, k=rng.randint(3, 30)))) for _ in range(300)]
    own, sparse = PassageIndex(passages), SparseIndex(passages)
    for _ in range(200):
        query = " ".join(rng.choices([*words, "unknown"], k=rng.randint(1, 6)))
        assert sparse.search(query, 10) == own.search(query, 10), query


def test_a_corpus_is_read_in_both_forms_and_is_known_by_its_bytes(corpus: Path) -> None:
    assert read_corpus(corpus) == PASSAGES
    digest = corpus_digest(corpus)
    assert titles(corpus_index(corpus, digest).search("chess", 1)) == ["Kenfe"]
    corpus.write_text(corpus.read_text() + '{"contents": "More."}\n')
    assert corpus_digest(corpus) != digest


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "row 0 of c.jsonl: the line is no JSON"),
        ('{"text": "a"}', "row 0 of c.jsonl has the columns text; expected 'contents', or 'title' and 'text'."),
        ('{"contents": " "}', "expected 'contents'"),
        ("", "has no passages; expected at least one."),
    ],
)
def test_a_corpus_with_rows_that_are_no_passages_raises(content: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=expected):
        read_corpus(path)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ('"Zulo"\nA town.', ("Zulo", "A town.")),
        ("Zulo\nA town.\nOld.", ("Zulo", "A town.\nOld.")),
        ("A town.", ("", "A town.")),
    ],
)
def test_the_first_line_of_several_is_the_title(contents: str, expected: tuple[str, str]) -> None:
    assert passage_of(contents) == expected


class LetterEncoder:
    """Embeds a text as the counts of its letters a, b and c."""

    def encode_query(self, inputs: list[str], **options: Any) -> Any:
        return np.array([[text.count(letter) for letter in "abc"] for text in inputs])

    encode_document = encode_query


def test_a_dense_index_ranks_by_the_cosine() -> None:
    passages = [Passage("", text) for text in ("aaaa", "ab", "bbb", "ccc", "")]
    found = DenseIndex(passages, LetterEncoder()).search("aab", 4)
    assert [each.text for each in found] == ["ab", "aaaa", "bbb", "ccc"]  # cosines 0.95, 0.89, 0.45, 0


@pytest.mark.slow
def test_a_real_sentence_encoder_with_random_weights_ranks_the_same_every_time(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate(["[PAD]", "[UNK]", "zulo", "mara", "town", "river"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(tmp_path / "bert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(tmp_path / "bert")
    transformer = Transformer(str(tmp_path / "bert"))
    SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").save(str(tmp_path / "encoder"))

    path = tmp_path / "corpus.jsonl"
    path.write_text('{"title": "1", "text": "zulo town"}\n{"title": "2", "text": "mara river"}\n')
    digest = corpus_digest(path)
    found = corpus_index(path, digest, str(tmp_path / "encoder")).search("2 mara river", 2)
    once_more = corpus_index.__wrapped__(path, digest, str(tmp_path / "encoder"))  # not the one that is remembered
    assert once_more.search("2 mara river", 2) == found
    assert titles(found) == ["2", "1"]  # the text itself is the nearest


def test_a_server_is_asked_in_search_r1s_protocol() -> None:
    with retrieving() as server:
        found = RemoteRetriever(server.url).search("Zulo", 2)
    assert found == (Passage("Zulo 0", "About Zulo."), Passage("Zulo 1", "About Zulo."))
    assert server.bodies == [{"queries": ["Zulo"], "topk": 2, "return_scores": True}]


def test_documents_without_scores_are_read_too() -> None:
    plain = [each["document"] for each in documents(["Zulo"], 3)["result"][0]]
    with retrieving((200, json.dumps({"result": [plain]}).encode())) as server:
        assert titles(RemoteRetriever(server.url).search("Zulo", 2)) == ["Zulo 0", "Zulo 1"]


def test_a_result_is_cached_by_address_corpus_query_and_k() -> None:
    with retrieving() as server:
        one, other = RemoteRetriever(server.url), RemoteRetriever(server.url, digest="wiki-18")
        for retriever, query, k in [(one, "a", 1), (one, "a", 1), (one, "b", 1), (one, "a", 2), (other, "a", 1)]:
            retriever.search(query, k)
        pickle.loads(pickle.dumps(one)).search("a", 1)
    asked = [(*body["queries"], body["topk"]) for body in server.bodies]
    assert asked == [("a", 1), ("b", 1), ("a", 2), ("a", 1)]


FAULTS = {
    "an error of the server": (500, b"oops"),
    "no answer in time": (0, b"{}"),
    "no JSON": (200, b"<html>"),
    "another structure": (200, b'{"results": []}'),
    "two results for one query": (200, json.dumps(documents(["a", "b"], 2)).encode()),
    "fewer passages": (200, json.dumps(documents(["a"], 1)).encode()),
    "no texts": (200, b'{"result": [[{"document": {"contents": 1}}, {"document": {"contents": 2}}]]}'),
    "a document that is no object": (200, b'{"result": [["a", "b"]]}'),
    "ten megabytes": (200, b'{"result": "' + b"a" * 10_000_000 + b'"}'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_tried_again_and_one_that_stays_is_a_failure_and_never_a_result(fault: str) -> None:
    with retrieving(FAULTS[fault]) as server:
        retriever = RemoteRetriever(server.url, timeout=0.4, patience=5)
        assert len(retriever.search("once", 2)) == 2
        server.faults[:] = [FAULTS[fault]] * 9
        with pytest.raises(RetrieverFailed, match=r"the retriever has no result: .*Start the retriever"):
            RemoteRetriever(server.url, timeout=0.4, patience=0.1).search("always", 2)
        server.faults.clear()
        assert len(retriever.search("always", 2)) == 2  # a failure is not cached


def test_a_refusal_fails_at_once() -> None:
    refused = pytest.raises(RetrieverFailed, match=r"refused \(422\): no topk")
    with retrieving((422, b"no topk")) as server, refused:
        RemoteRetriever(server.url).search("a", 1)
    assert len(server.bodies) == 1


def test_a_server_that_is_down_is_a_failure() -> None:
    with pytest.raises(RetrieverFailed, match="did not answer in 1 tries"):
        RemoteRetriever("http://127.0.0.1:9/retrieve", patience=0.05).search("a", 1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"url": "localhost:8000"}, "url is 'localhost:8000'; expected one such as"),
        ({"patience": 0}, "patience is 0;"),
    ],
)
def test_settings_of_a_server_that_make_no_sense_raise(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        RemoteRetriever(**{"url": "http://localhost", **settings})
