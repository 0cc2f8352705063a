"""Sound programs, which a sandbox must let pass: what people and models write for contests and as tools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """A program, its input and what it prints; or a function of the program, its arguments and what it returns."""

    name: str
    program: str
    given: object
    expected: object
    fn_name: str | None = None
    prelude: str = ""


def script(name: str, program: str, stdin: str = "", expected: str = "") -> Program:
    return Program(name, program, stdin, expected)


PROGRAMS = [
    script("print", "print(int(input()) + int(input()))", "2\n3\n", "5"),
    script("sys_exit", "import sys\nprint(1)\nsys.exit()\nprint(2)", "", "1"),
    script("sys_exit_zero", "import sys\nprint(1)\nsys.exit(0)", "", "1"),
    script("exit", "print(1)\nexit()", "", "1"),
    script("quit", "print(1)\nquit()", "", "1"),
    script("system_exit_in_a_function", "def f():\n    raise SystemExit\nprint(1)\nf()", "", "1"),
    script(
        "buffered_output_at_exit",
        "import atexit, io, sys\nout = io.StringIO()\nprint = lambda *a: out.write(' '.join(map(str, a)) + '\\n')\n"
        "atexit.register(lambda: sys.__stdout__.write(out.getvalue()))\nprint(1)\nprint(2)",
        "",
        "1\n2",
    ),
    script(
        "fast_io_of_pyrival",
        "import os, sys, atexit\nfrom io import BytesIO\nsys.stdout = BytesIO()\n"
        "atexit.register(lambda: os.write(1, sys.stdout.getvalue()))\n"
        "input = BytesIO(os.read(0, os.fstat(0).st_size)).readline\n"
        "n = int(input())\nsys.stdout.write(b'%d' % (n * 2))",
        "21\n",
        "42",
    ),
    script("open_zero", "print(sum(map(int, open(0))))", "1\n2\n3\n", "6"),
    script("open_dev_stdin", "print(sum(map(int, open('/dev/stdin').read().split())))", "1 2 3", "6"),
    script("path_dev_stdin", "import pathlib\nprint(pathlib.Path('/dev/stdin').read_text().strip())", "x y\n", "x y"),
    script(
        "with_open_zero",
        "with open(0) as f:\n    a, *b = map(int, f.read().split())\nprint(a, b)",
        "1 2 3",
        "1 [2, 3]",
    ),
    script("stdin_buffer", "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", "1 2 3", "6"),
    script("stdin_lines", "import sys\nprint(sum(int(l) for l in sys.stdin if l.strip()))", "1\n\n2\n", "3"),
    script("readline_alias", "import sys\ninput = sys.stdin.readline\nprint(input().strip() * 2)", "ab\n", "abab"),
    script(
        "end_of_input",
        "s = 0\nwhile True:\n    try:\n        s += int(input())\n    except EOFError:\n        break\nprint(s)",
        "1\n2",
        "3",
    ),
    script("fileinput", "import fileinput\nprint(len(list(fileinput.input())))", "a\nb\n", "2"),
    script(
        "stdout_buffer", "import sys\nsys.stdout.buffer.write(b'1\\n')\nsys.stdout.buffer.flush()\nprint(2)", "", "1 2"
    ),
    script("stderr_too", "import sys\nprint('debug', file=sys.stderr)\nprint(1)", "", "1"),
    script("utf_8", "print(input().upper(), 'ñ', '漢字')", "é\n", "É ñ 漢字"),
    script("main_guard", "def main():\n    print(1)\nif __name__ == '__main__':\n    main()", "", "1"),
    script(
        "future_import", "from __future__ import annotations\ndef f(x: Undefined) -> None: print(x)\nf(1)", "", "1"
    ),
    script(
        "deep_recursion",
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nprint(f(50_000))",
        "",
        "50000",
    ),
    script(
        "deep_recursion_in_c",
        "import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**6)\n@lru_cache(None)\n"
        "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nprint(f(15_000))",
        "",
        "15000",
    ),
    script(
        "thread_with_a_big_stack",
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(128 * 1024 * 1024)\n"
        "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\ndef main():\n    print(f(100_000))\n"
        "t = threading.Thread(target=main)\nt.start()\nt.join()",
        "",
        "100000",
    ),
    script(
        "thread_with_half_a_gigabyte_of_stack",
        "import threading\nthreading.stack_size(1 << 29)\nt = threading.Thread(target=lambda: print(1))\nt.start()",
        "",
        "1",
    ),
    script(
        "thread_not_joined",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print(1))).start()",
        "",
        "1",
    ),
    script(
        "daemon_thread",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\nprint(1)",
        "",
        "1",
    ),
    script(
        "thread_pool",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
        "    print(sum(pool.map(lambda x: x * x, range(10))))",
        "",
        "285",
    ),
    script(
        "asyncio",
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x\n"
        "async def main():\n    print(sum(await asyncio.gather(*map(f, range(5)))))\nasyncio.run(main())",
        "",
        "10",
    ),
    script("sleep", "import time\ntime.sleep(0.05)\nprint(1)", "", "1"),
    script(
        "alarm",
        "import signal\nclass Late(Exception): pass\ndef late(*a): raise Late\nsignal.signal(signal.SIGALRM, late)\n"
        "try:\n    signal.setitimer(signal.ITIMER_REAL, 0.05)\n    while True: pass\nexcept Late:\n    print('late')",
        "",
        "late",
    ),
    script(
        "contest_imports",
        "import sys, math, heapq, bisect, itertools, functools, collections, string, random, re, operator, copy\n"
        "from collections import *\nfrom typing import *\nfrom math import gcd, inf\nprint(gcd(12, 18), Counter('aab')['a'])",
        "",
        "6 2",
    ),
    script(
        "less_usual_imports",
        "import asyncio, hashlib, dataclasses, inspect, csv, zlib, base64, difflib, unicodedata, uuid, calendar, secrets\n"
        "import json, pickle, textwrap, pprint, urllib.parse, xml.etree.ElementTree as et, argparse, logging, tempfile\n"
        "print(hashlib.md5(b'a').hexdigest()[:6], unicodedata.name('a'), et.fromstring('<a b=\"1\"/>').attrib['b'])",
        "",
        "0cc175 LATIN SMALL LETTER A 1",
    ),
    script(
        "sqlite_in_memory",
        "import sqlite3\nprint(sqlite3.connect(':memory:').execute('select 1 + 1').fetchone()[0])",
        "",
        "2",
    ),
    script(
        "dataclass",
        "from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    x: int\n    y: int = 2\nprint(P(1))",
        "",
        "P(x=1, y=2)",
    ),
    script(
        "decimal_and_fractions",
        "from decimal import *\nfrom fractions import Fraction\ngetcontext().prec = 30\nprint(Decimal(1) / 7, Fraction(1, 3) + 1)",
        "",
        "0.142857142857142857142857142857 4/3",
    ),
    script("big_integers", "print(len(str(3 ** 5000)))", "", "2386"),
    script(
        "digits_without_limit", "import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(1 << 20000)))", "", "6021"
    ),
    script(
        "match_and_walrus",
        "match [int(x) for x in input().split()]:\n    case [a, *b] if (n := len(b)) > 1:\n        print(a, n)",
        "1 2 3",
        "1 2",
    ),
    script(
        "set_order_is_the_same",
        "print(*{'a', 'b', 'c', 'd'} == {'d', 'c', 'b', 'a'} and [hash('a') == hash('a')] )",
        "",
        "True",
    ),
    script(
        "pickle",
        "import pickle, copy\nprint(pickle.loads(pickle.dumps({'a': [1]})), copy.deepcopy([[1]]))",
        "",
        "{'a': [1]} [[1]]",
    ),
    script("enum_and_abc", "import enum, abc\nclass C(enum.Enum):\n    A = enum.auto()\nprint(C.A.name)", "", "A"),
    script("exec_and_eval", "exec('x = 1')\nprint(eval('x + 1'))", "", "2"),
    script("input_prompt", "n = input('number? ')\nprint(n)", "5", "number? 5"),
    script("a_lot_of_output", "for i in range(40_000): print(i)", "", "\n".join(map(str, range(40_000)))),
    script("a_lot_of_input", "print(sum(map(int, input().split())))", " ".join(["7"] * 200_000), "1400000"),
    script(
        "redirected_output",
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as s:\n    print('x')\nprint(len(s.getvalue()))",
        "",
        "2",
    ),
    script(
        "garbage_collector",
        "import gc\ngc.disable()\na = [[] for _ in range(10**5)]\ngc.collect()\nprint(len(a))",
        "",
        "100000",
    ),
    script("random_with_a_seed", "import random\nrandom.seed(1)\nprint(random.randint(1, 100))", "", "18"),
    script("ctypes", "import ctypes\nprint(ctypes.c_int32(2**31).value)", "", "-2147483648"),
    script("processor_count", "import os, time\nprint((os.cpu_count() or 1) > 0, time.time() > 1e9)", "", "True True"),
    script(
        "write_to_dev_null",
        "import sys, os\nsys.stderr = open(os.devnull, 'w')\nprint('x', file=sys.stderr)\nprint(1)",
        "",
        "1",
    ),
    Program("function", "def add(a, b):\n    return a + b", [2, 3], 5, "add"),
    Program("function_of_lists", "def f(a):\n    return sorted(a)", [[3, 1, 2]], [1, 2, 3], "f"),
    Program("tuple_is_a_list", "def f():\n    return 1, 'a', None", [], [1, "a", None], "f"),
    Program("dict_result", "def f(n):\n    return {i: i * i for i in range(n)}", [3], {0: 0, 1: 1, 2: 4}, "f"),
    Program("float_result", "def f(a, b):\n    return a / b", [1, 4], 0.25, "f"),
    Program(
        "bool_result", "def is_prime(n):\n    return n > 1 and all(n % d for d in range(2, n))", [7], True, "is_prime"
    ),
    Program("function_that_prints", "def f(a):\n    print('debug', a)\n    return a", [1], 1, "f"),
    Program(
        "module_with_a_main_guard",
        "def f(a):\n    return a\nif __name__ == '__main__':\n    print(f(int(input())))",
        [1],
        1,
        "f",
    ),
    Program(
        "solution_class",
        "class Solution:\n    def f(self, a):\n        return self.g(a)\n    def g(self, a):\n        return a + 1",
        [1],
        2,
        "f",
    ),
    Program("unicode_result", "def f(s):\n    return s[::-1]", ["añ漢"], "漢ña", "f"),
]
