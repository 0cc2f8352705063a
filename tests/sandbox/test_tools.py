"""The tools that native commands are made for: a compiler, a simulator, a database shell; and attacks by their input.

Each is skipped where the machine does not have it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena import Secret, secret
from pettingllms_envs.sandbox import Command, CommandResult, Limits, Sandbox, SandboxUnavailable, Verdict


NEEDS = {
    "gcc": ("/usr/include", "/usr/lib/gcc", "/usr/libexec/gcc", "/usr/bin/as", "/usr/bin/ld"),
    "sqlite3": (),
    "iverilog": ("/bin/sh",),
    "vvp": (),
}
LIMITS = Limits(cpu=5.0, wall=20.0)


@pytest.fixture(scope="module")
def tools(sandbox: Sandbox) -> Iterator[Sandbox]:
    """A sandbox with the tools that there are."""
    commands = [
        Command(name, reads=tuple(path for path in reads if os.path.exists(path)))
        for name, reads in NEEDS.items()
        if shutil.which(name)
    ]
    with Sandbox(num_slots=1, commands=commands) as made:
        try:
            made.start_commands()
        except SandboxUnavailable as error:
            if not sandbox.start().startswith("no-open"):
                raise
            pytest.skip(f"native commands cannot be contained here: {error}")
        yield made


def run(tools: Sandbox, argv: list[str], **settings: object) -> CommandResult:
    for name in (argv[0], *(["vvp"] if argv[0] == "iverilog" else [])):
        if not shutil.which(name):
            pytest.skip(f"the machine has no {name}")
    return tools.run_command(argv, **{"limits": LIMITS} | settings)  # type: ignore[arg-type]


def test_a_compiler_makes_a_program_that_runs(tools):
    source = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", n * n); }'
    built = run(tools, ["gcc", "src/main.c", "-o", "main"], files={"src/main.c": source}, outputs=["main"])
    assert (built.verdict, built.stderr) == (Verdict.FINISHED, b"")
    result = tools.run_command(["./main"], files=dict(built.files), stdin="7")
    assert (result.verdict, result.stdout) == (Verdict.FINISHED, b"49\n")


def test_an_error_of_a_compiler_names_files_as_they_were_given(tools):
    result = run(tools, ["gcc", "main.c"], files={"main.c": "int main( { }"}, outputs=["a.out"])
    assert (result.verdict, result.exit_code, result.files) == (Verdict.RUNTIME_ERROR, 1, {})
    assert result.stderr.startswith(b"main.c:1:")


def test_a_database_shell_writes_its_database(tools):
    made = run(tools, ["sqlite3", "a.db"], stdin="create table t(a); insert into t values (1), (2);", outputs=["a.db"])
    assert made.verdict == Verdict.FINISHED
    asked = tools.run_command(["sqlite3", "a.db"], files=dict(made.files), stdin="select sum(a) from t;")
    assert asked.stdout == b"3\n"


def test_a_simulator_simulates(tools):
    source = 'module t; initial begin $display("%0d", 6 * 7); $finish; end endmodule'
    built = run(tools, ["iverilog", "-o", "t.vvp", "t.v"], files={"t.v": source}, outputs=["t.vvp"])
    assert (built.verdict, built.stderr) == (Verdict.FINISHED, b"")
    assert tools.run_command(["vvp", "t.vvp"], files=dict(built.files)).stdout == b"42\n"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secret]:
    with secret(tmp_path_factory.mktemp("hidden")) as made:
        yield made


C_ATTACKS = {
    "include": ['#include "SECRET"\n'],
    "include_from_a_folder": ["#include <secret>\n", "-IFOLDER"],
    "assembled_into_the_program": ['__asm__(".incbin \\"SECRET\\"");\nint main(void) { return 0; }'],
    "read_as_options": ["", "@SECRET"],
    "read_as_a_script_of_the_linker": ["int main(void) { return 0; }", "-Wl,-T,SECRET"],
    "read_as_a_specification": ["int main(void) { return 0; }", "-specs=SECRET"],
    "wrapped_by_a_shell": ["int main(void) { return 0; }", "-wrapper", "sh,-c,echo FOOTHOLD"],
    "written_elsewhere": ["int main(void) { return 0; }", "-o", "/tmp/an-attack"],
    "temporary_files_elsewhere": ["int main(void) { return 0; }", "-save-temps", "-dumpdir", "/tmp/an-attack"],
    "with_an_endless_macro": ["\n".join(f"#define a{n + 1} a{n} a{n} a{n} a{n}" for n in range(40)) + "\na40"],
}


@pytest.mark.parametrize("name", C_ATTACKS)
def test_a_source_gets_nothing_out_of_the_compiler(tools, hidden, name):
    source, *options = (
        text.replace("SECRET", str(hidden.path)).replace("FOLDER", str(hidden.path.parent)) for text in C_ATTACKS[name]
    )
    out = [] if "-o" in options else ["-o", "main"]
    limits = Limits(cpu=0.5, wall=2.0, memory=1 << 28)
    result = run(tools, ["gcc", "main.c", *out, *options], files={"main.c": source}, outputs=["main"], limits=limits)
    check(result, hidden)


SQL_ATTACKS = {
    "read_by_a_function": "select readfile('SECRET');",
    "imported": "create table t(a);\n.import SECRET t\nselect * from t;",
    "attached": "attach 'SECRET' as x; select * from x.sqlite_master;",
    "read_as_a_script": ".read SECRET",
    "opened": ".open SECRET\n.tables",
    "a_shell": ".shell echo FOOTHOLD",
    "a_shell_of_the_system": ".system echo FOOTHOLD",
    "a_pipe": ".once |cat SECRET\nselect 1;",
    "an_editor": "select edit('x', 'cat SECRET');",
    "an_extension": ".load SECRET",
    "written_by_a_function": "select writefile('/tmp/an-attack', 'x');",
    "attached_elsewhere": "attach '/tmp/an-attack' as x; create table x.t(a);",
    "output_elsewhere": ".output /tmp/an-attack\nselect 1;",
    "saved_elsewhere": ".save /tmp/an-attack",
    "an_endless_query": "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t;",
    "large_values": "select length(zeroblob(1000000000)), length(randomblob(1000000000));",
    "a_flood": "with recursive t(n) as (select 1 union all select n + 1 from t) select hex(zeroblob(10000)) from t;",
}


@pytest.mark.parametrize("name", SQL_ATTACKS)
def test_a_query_gets_nothing_out_of_the_database_shell(tools, hidden, name):
    limits = Limits(cpu=0.2, wall=0.4, memory=1 << 28)
    text = SQL_ATTACKS[name].replace("SECRET", str(hidden.path))
    check(run(tools, ["sqlite3", "a.db"], stdin=text + "\n", outputs=["a.db"], limits=limits), hidden)


def check(result: CommandResult, hidden: Secret) -> None:
    written = result.stdout + result.stderr + b"".join(result.files.values())
    assert hidden.text.encode() not in written
    assert b"FOOTHOLD" not in written.replace(b"echo FOOTHOLD", b"")
    assert result.verdict != Verdict.SANDBOX_ERROR
    assert not [path for path in Path("/tmp").iterdir() if "an-attack" in path.name]
    assert hidden.path.read_text() == hidden.text + "\n"
