"""Partners behind an OpenAI-compatible endpoint, against a server of the standard library."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import yaml

from pettingllms_envs.observations import Limits
from pettingllms_trl import Policy
from pettingllms_trl.cli import __main__ as cli
from pettingllms_trl.cli import arguments
from pettingllms_trl.engines.api import ChatApi, ask
from pettingllms_trl.records import Prompt, Request


KEY = "s3cret-0123456789"
ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]


class Endpoint(ThreadingHTTPServer):
    """Replies `Moves: R`, after the statuses in `first`; keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.first: list[int] = []
        self.answer: Any = {"choices": [{"message": {"role": "assistant", "content": "Moves: R"}}]}
        self.seconds = 0.0
        self.page = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append({"path": self.path, **body})
        self.server.keys.append(self.headers["Authorization"])
        time.sleep(self.server.seconds)
        status = self.server.first.pop(0) if self.server.first else 200
        text = json.dumps(self.server.answer if status == 200 else {"error": f"no {self.headers['Authorization']}"})
        self.send_response(status)
        self.end_headers()
        self.wfile.write((self.server.page or text).encode())

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTNER_KEY", KEY)


def test_a_reply_is_asked_for_with_the_key_and_what_was_set_and_nothing_else(endpoint: Endpoint) -> None:
    api = ChatApi(endpoint.url, "big", key_env="PARTNER_KEY", max_tokens=9, extra={"seed": 1})
    assert api(ASK) == "Moves: R"
    assert endpoint.bodies == [
        {"path": "/v1/chat/completions", "model": "big", "messages": ASK, "max_tokens": 9, "seed": 1}
    ]
    assert endpoint.keys == [f"Bearer {KEY}"]
    assert KEY not in repr(api)
    assert ChatApi(endpoint.url + "/", "big")(ASK) == "Moves: R"
    assert endpoint.keys[1] is None


@pytest.mark.parametrize(("own", "expected"), [(None, 5), (3, 3), (9, 5)])
def test_a_prompts_limit_is_asked_for_as_in_an_evaluation(own: int | None, expected: int, endpoint: Endpoint) -> None:
    prompt = Prompt([{"role": "user", "content": "?"}])
    request = Request("judge_0", prompt, 1, limits=Limits(max_tokens=5, stop=("R",)))
    (completion,) = ask(ChatApi(endpoint.url, "big", max_tokens=own), request).completions
    assert (endpoint.bodies[0]["max_tokens"], completion.text) == (expected, "Moves: ")
    assert ask(lambda messages: "Moves: R", request).completions[0].text == "Moves: "  # which takes no limit


@pytest.mark.parametrize("status", [200, 404, 502])
def test_the_page_of_a_proxy_is_named_by_its_title(status: int, endpoint: Endpoint) -> None:
    endpoint.first, endpoint.page = [status] * 99, f"<html>\n<title>Bad Gateway</title>{'<p>nginx</p>' * 999}</html>"
    with pytest.raises(RuntimeError, match="a page of text/html: 'Bad Gateway'") as failed:
        ChatApi(endpoint.url, "big", patience=0.3)(ASK)
    assert "nginx" not in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_model_that_says_nothing_is_no_error(endpoint: Endpoint) -> None:
    endpoint.answer = {"choices": [{"message": {"content": None}}]}
    assert ChatApi(endpoint.url, "big")(ASK) == ""


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_busy_or_fails_is_asked_again(status: int, endpoint: Endpoint) -> None:
    endpoint.first = [status, status]
    assert ChatApi(endpoint.url, "big")(ASK) == "Moves: R"
    assert len(endpoint.bodies) == 3


@pytest.mark.parametrize(
    ("first", "answer", "said"),
    [
        ([401], None, r"/v1/chat/completions refused \(401\) the model 'big': .*no Bearer \*\*\*"),
        ([], {"choices": []}, r"an answer that is no chat completion: .*choices.: \[\]"),
        ([], "hello", r"an answer that is no chat completion: .hello"),
        ([], {"choices": [{"message": {"content": [1]}}]}, r"an answer that is no chat completion: .*content"),
        ([503] * 9, None, r"did not answer in \d tries and 0.5 s, .*status 503"),
    ],
    ids=["refused", "no choices", "no JSON", "no text", "down"],
)
def test_what_the_server_will_not_do_is_said_in_its_words_without_the_key(
    first: list[int], answer: Any, said: str, endpoint: Endpoint
) -> None:
    endpoint.first, endpoint.answer = first, answer
    api = ChatApi(endpoint.url, "big", key_env="PARTNER_KEY", patience=0.5)
    with pytest.raises(RuntimeError, match=said) as found:
        api(ASK)
    assert KEY not in "".join(traceback.format_exception(found.value))


def test_an_answer_that_does_not_begin_is_not_waited_for(endpoint: Endpoint) -> None:
    endpoint.seconds = 3.0
    with pytest.raises(RuntimeError, match=r"did not answer in 1 tries and 0.2 s, the last time with ReadTimeout"):
        ChatApi(endpoint.url, "big", timeout=0.3, patience=0.2)(ASK)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"base_url": "host/v1"}, "base_url is 'host/v1'; expected a URL such as http"),
        ({"model": None}, "model is None; expected a text"),
        ({"key_env": "NO_SUCH_KEY"}, "key_env is 'NO_SUCH_KEY', but there is no such environment variable"),
        ({"key_env": KEY}, "key_env is not shown here, .*expected the name of an environment variable"),
        ({"timeout": 0}, "timeout is 0; expected seconds"),
    ],
)
def test_an_api_that_cannot_be_asked_is_refused_at_once(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as found:
        ChatApi(**{"base_url": "http://host/v1", "model": "big", **fields})
    assert KEY not in str(found.value)


# ---- From a configuration -------------------------------------------------------------------------------------------


def test_an_api_is_a_policy_of_a_configuration() -> None:
    given = {"drafter": "d", "planner": {"api": {"base_url": "http://host/v1", "model": "big"}}}
    assert arguments.policies(given) == {"drafter": "d", "planner": Policy(api=ChatApi("http://host/v1", "big"))}


def test_a_scripted_partner_is_a_function_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("partner.py").write_text("def lazy(messages):\n    return f'Moves: U {len(messages)}'\nnumber = 3\n")
    (policy,) = arguments.policies({"planner": {"api": "partner.py:lazy"}}).values()
    assert isinstance(policy, Policy)
    assert policy.api is not None
    assert policy.api([{"role": "user", "content": "?"}]) == "Moves: U 1"
    for name, said in (("number", "is 3; expected a function"), ("none", "is None; expected a function")):
        with pytest.raises(ValueError, match=rf"api is 'partner.py:{name}', which {said}. Write def {name}."):
            arguments.policies({"planner": {"api": f"partner.py:{name}"}})
    with pytest.raises(ValueError, match=r"api is 'other.py:lazy'; expected a file of this machine"):
        arguments.policies({"planner": {"api": "other.py:lazy"}})


@pytest.mark.parametrize(
    ("api", "said"),
    [
        (
            {"base_url": "http://host/v1"},
            r"policies\['planner'\]\.api is without model; expected at least base_url and",
        ),
        ({"base_url": "http://h/v1", "model": "m", "key_en": "K"}, r"\.api has 'key_en'; .*Did you mean 'key_env'\?"),
        ("http://host/v1", r"policies\['planner'\]\.api is 'http://host/v1'; expected a mapping"),
    ],
)
def test_an_api_that_is_none_is_refused(api: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        arguments.policies({"planner": {"api": api}})


def test_a_team_with_such_a_partner_trains_from_the_command_line_and_leaves_no_key(
    endpoint: Endpoint, model_path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = {
        "env_id": "pettingllms/plan_path-v0",
        "env_kwargs": {"size": 4, "num_turns": 1},
        "imports": ["pettingllms_envs"],
        "model_name_or_path": model_path,
        "policies": {
            "drafter": "drafter",
            "planner": {"api": {"base_url": endpoint.url, "model": "big", "key_env": "PARTNER_KEY"}},
        },
        "train_seeds": [0, 8],
        "num_generations": 2,
        "per_device_train_batch_size": 4,
        "max_completion_length": 4,
        "max_steps": 2,
        "num_threads": 2,
        "logging_steps": 1,
        "save_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "output_dir": str(tmp_path / "out"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    assert cli.train(["--config", str(tmp_path / "run.yaml")]) == 0
    assert len(endpoint.bodies) == 2 * 2  # two instances a step, each asked once, whatever K is
    assert (tmp_path / "out" / "checkpoint-2" / "drafter" / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "out" / "planner").exists()
    shown = capfd.readouterr()
    assert KEY not in shown.out + shown.err
    written = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert any(file.name == "training_args.bin" for file in written)
    assert not [file for file in written if KEY.encode() in file.read_bytes()]
    assert KEY not in str(torch.load(tmp_path / "out" / "training_args.bin", weights_only=False).to_dict())
