"""Installed packages are not the interpreter's: programs read none, or those that the caller asked for."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pluggy
import pytest

from arena import skip_unless_broken
from pettingllms_envs.sandbox import CONFINEMENTS, Sandbox, SandboxUnavailable, layers


READ = """
import os, sys
path = input()
for each in (path, path.replace("__init__", "_hooks")):
    try: print(open(each).read(10))
    except OSError: print("refused")
sys.path.append(os.path.dirname(os.path.dirname(path)))
try: import pluggy._hooks; print(pluggy)
except (ImportError, OSError): print("refused")
"""


def started(**settings: object) -> Sandbox:
    box = Sandbox(num_slots=1, **settings)
    try:
        box.start()
    except SandboxUnavailable as error:
        skip_unless_broken(box, str(error))
    return box


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_no_package_can_be_read(confinement):
    with started(confinement=confinement) as box:
        assert box.run(READ, pluggy.__file__).stdout.split() == [b"refused"] * 3


@pytest.mark.parametrize("confinement", ["namespaces", "landlock"])
def test_where_packages_are_imported_ours_with_its_oracles_is_still_hidden(confinement, monkeypatch):
    # Here our package is not among the others, so another one plays it.
    monkeypatch.setattr(layers, "__file__", str(Path(pluggy.__file__).parent / "sandbox" / "layers.py"))
    with started(confinement=confinement, imports=("numpy",)) as box:
        assert box.run(READ, pluggy.__file__).stdout.split() == [b"refused"] * 3
        result = box.run("import numpy, numpy.linalg; print(int(numpy.linalg.det(numpy.eye(2))))")
        assert result.stdout == b"1\n", result


def test_packages_are_found_wherever_distributions_put_them(tmp_path):
    for name in ("lib/python3.12/site-packages", "usr/lib/python3/dist-packages", "base/site-packages"):
        (tmp_path / name).mkdir(parents=True)
    dirs = tuple(str(tmp_path / name) for name in ("lib", "usr/lib", "base"))
    assert layers.hidden_dirs(dirs, ()) == (
        f"{tmp_path}/base/site-packages",
        f"{tmp_path}/lib/python3.12/site-packages",
        f"{tmp_path}/usr/lib/python3/dist-packages",
    )


def test_our_package_is_hidden_under_every_name_that_leads_to_it(tmp_path, monkeypatch):
    site = tmp_path / "lib" / "site"
    (site / "ours" / "sandbox").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    monkeypatch.setattr(layers, "__file__", str(site / "ours" / "sandbox" / "layers.py"))
    dirs = (str(site), f"{tmp_path}/lib64/site")
    assert layers.hidden_dirs(dirs, ("numpy",)) == (f"{site}/ours", f"{tmp_path}/lib64/site/ours")
    assert layers.hidden_dirs((f"{tmp_path}/elsewhere",), ()) == ()


def test_the_standard_library_is_that_of_the_interpreter_and_not_of_an_environment():
    site = sysconfig.get_path("purelib")
    dirs = layers.readable_dirs(())
    assert site not in dirs
    below = [each for each in dirs if site.startswith(each + "/")]
    assert not below or site in layers.hidden_dirs(dirs, ())
