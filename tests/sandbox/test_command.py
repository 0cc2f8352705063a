import re

import pytest

from pettingllms_envs.cli import main


def test_the_command_shows_what_works_and_what_is_active(sandbox, capsys):
    assert main(["sandbox"]) == 0
    out = capsys.readouterr().out
    for name in ("linux", "uid", "landlock", "namespaces", "user-namespaces", "no-open"):
        assert re.search(rf"^  {name} +(yes|no: .+)$", out, re.MULTILINE), out
    assert f"Active: {sandbox.start()}" in out
    assert "  files are unreadable\n" in out


def test_an_unknown_isolation_is_refused_in_one_line(capsys):
    assert main(["sandbox", "--min-isolation", "docker"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: min_isolation is 'docker'; expected one of 'namespaces'")
    assert err.count("\n") == 1


def test_a_machine_that_allows_nothing_ends_with_status_1(monkeypatch, capsys):
    monkeypatch.setattr("sys.platform", "darwin")
    assert main(["sandbox"]) == 1
    out = capsys.readouterr().out
    assert "linux            no: this is darwin. To have it, use Linux" in out
    assert "Active" not in out


@pytest.mark.parametrize("argument", ["--help"])
def test_its_help_says_what_it_is_for(capsys, argument):
    with pytest.raises(SystemExit):
        main(["sandbox", argument])
    assert "how a model's programs are isolated on this machine" in " ".join(capsys.readouterr().out.split())
