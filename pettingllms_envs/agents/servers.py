"""Finds the server of a model: an alias of the user's file, or what OpenAI's environment variables say.

The file is `~/.config/pettingllms/servers.toml`, or the one that PETTINGLLMS_SERVERS names. Each of its tables is a
server, with options of an agent of the kind `api`:

    [local]
    base_url = "http://localhost:8000/v1"

    [hosted]
    base_url = "https://api.example.com/v1"
    key_env = "EXAMPLE_API_KEY"

`--base-url local`, and `MODEL@local` where a model is named, stand for that server. Without any, OPENAI_BASE_URL is
the server, and OPENAI_API_KEY its key; the key goes to no other server unless `key_env` names it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.suggestions import did_you_mean


FILE_VARIABLE = "PETTINGLLMS_SERVERS"
URL_VARIABLE, KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"
KIND = "api"


def servers_file() -> Path:
    """The file with the aliases, which may not exist."""
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "pettingllms" / "servers.toml"


def read_servers() -> dict[str, dict[str, Any]]:
    """The servers by alias; none if there is no file."""
    file = servers_file()
    if not file.exists() and not os.environ.get(FILE_VARIABLE):
        return {}
    try:
        found = tomllib.loads(file.read_text("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{file} is not TOML ({error}); expected tables such as [local]. Correct it.") from None
    for alias, server in found.items():
        if not isinstance(server, dict) or not isinstance(server.get("base_url"), str):
            raise ValueError(
                f"{file} has {alias} = {server!r}; expected a table [{alias}] with a base_url, such as "
                'base_url = "http://localhost:8000/v1". Correct it.'
            )
    return found


def with_server(spec: AgentSpec) -> AgentSpec:
    """The spec with the server of its alias or, without one, of OPENAI_BASE_URL. Kinds but `api` stay as they are."""
    if spec.kind != KIND:
        return spec
    url = spec.options.get("base_url")
    model, at, alias = (spec.target or "").rpartition("@")
    if not at and isinstance(url, str) and "://" in url:
        return spec
    servers = read_servers()
    # The key of another server must not go to this one, so both are the alias's, whatever else is given.
    own = {name: value for name, value in spec.options.items() if name not in ("base_url", "key_env")}
    if at and alias in servers:
        return AgentSpec(KIND, model, {**servers[alias], **own})
    if at and url is None and (hint := did_you_mean(alias, servers)):
        raise ValueError(
            f"the model is {spec.target!r}, but {servers_file()} has no server {alias!r}; expected one that it has."
            f"{hint} If @{alias} is part of the model's name, give --base-url URL."
        )
    if isinstance(url, str) and "://" not in url:
        return AgentSpec(KIND, spec.target, {**_named(url, servers), **own})
    if url is None and (url := os.environ.get(URL_VARIABLE)):
        key = {"key_env": KEY_VARIABLE} if os.environ.get(KEY_VARIABLE) else {}
        return spec.with_defaults({"base_url": url, **key})
    return spec


def _named(alias: str, servers: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if alias not in servers:
        known = ", ".join(servers) or "none"
        raise ValueError(
            f"the server is {alias!r}; expected a URL such as http://localhost:8000/v1, or one of those that "
            f"{servers_file()} names: {known}.{did_you_mean(alias, servers)}"
        )
    return servers[alias]
