"""Sound programs, which a sandbox must let pass: what people and models write for contests and as tools."""

from __future__ import annotations

from dataclasses import dataclass

from pettingllms_envs.sandbox import LEETCODE_PRELUDE


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
        "imports_of_who_looks_for_mistakes",
        "import cProfile, code, doctest, pdb, profile, pstats\n"
        "def f(n):\n    '>>> f(2)\\n4'\n    return n * n\n"
        "print(doctest.testmod().failed, f(int(input())))",
        "3",
        "0 9",
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
    script(
        "fast_io_class_of_pyrival",
        """
import os, sys
from io import BytesIO, IOBase
class FastIO(IOBase):
    newlines = 0
    def __init__(self, file):
        self._fd = file.fileno(); self.buffer = BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None
    def readline(self):
        while self.newlines == 0:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            self.newlines = b.count(b"\\n") + (not b)
            ptr = self.buffer.tell(); self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines -= 1
        return self.buffer.readline()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue()); self.buffer.truncate(0), self.buffer.seek(0)
class IOWrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file); self.flush = self.buffer.flush; self.writable = self.buffer.writable
        self.write = lambda s: self.buffer.write(s.encode("ascii")); self.readline = lambda: self.buffer.readline().decode("ascii")
sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
input = lambda: sys.stdin.readline().rstrip("\\r\\n")
n = int(input())
print(sum(int(input()) for _ in range(n)))
""",
        "3\n1\n2\n3\n",
        "6",
    ),
    script("os_read", "import os\nprint(sum(map(int, os.read(0, 10**7).split())))", "1 2\n3\n", "6"),
    script(
        "input_is_mapped",
        "import mmap\nm = mmap.mmap(0, 0, access=mmap.ACCESS_READ)\nprint(sum(map(int, m[:].split())))",
        "4 5",
        "9",
    ),
    script(
        "input_is_an_iterator",
        "import sys\ninput = iter(sys.stdin.read().splitlines()).__next__\nprint(input() + input())",
        "a\nb",
        "ab",
    ),
    script(
        "input_in_a_local_file",
        "import os, sys\nif os.path.exists('input.txt'): sys.stdin = open('input.txt')\nprint(input())",
        "x",
        "x",
    ),
    script(
        "input_in_a_missing_file",
        "import sys\ntry: sys.stdin = open('input.txt')\nexcept FileNotFoundError: pass\nprint(input())",
        "x",
        "x",
    ),
    script("input_with_carriage_returns", "print(int(input()) + int(input()))", "1\r\n2\r\n", "3"),
    script("input_with_a_byte_order_mark", "\ufeffprint(input())", "x", "x"),
    script(
        "json_and_csv_from_input",
        "import csv, json, sys\nprint(json.loads(input()), list(csv.reader(sys.stdin)))",
        '{"a": 1}\n1,2\n',
        "{'a': 1} [['1', '2']]",
    ),
    script(
        "select_on_the_input",
        "import select, sys\nprint(select.select([sys.stdin], [], [], 0)[0] == [sys.stdin], sys.stdin.isatty())",
        "x",
        "True False",
    ),
    script(
        "recursion_in_a_thread_with_all_limits_raised",
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**27)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\ndef main(): print(f(150_000))\n"
        "t = threading.Thread(target=main)\nt.start()\nt.join()",
        "",
        "150000",
    ),
    script(
        "stack_limit_raised",
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (2**29, resource.RLIM_INFINITY))\n"
        "sys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(50_000))",
        "",
        "50000",
    ),
    script(
        "generators_instead_of_recursion",
        """
from types import GeneratorType
def bootstrap(f, stack=[]):
    def wrapped(*args):
        if stack: return f(*args)
        to = f(*args)
        while True:
            if type(to) is GeneratorType: stack.append(to); to = next(to)
            else:
                stack.pop()
                if not stack: break
                to = stack[-1].send(to)
        return to
    return wrapped
@bootstrap
def depth(n):
    if n == 0: yield 0
    yield 1 + (yield depth(n - 1))
print(depth(20_000))
""",
        "",
        "20000",
    ),
    script(
        "interactive",
        "import sys\nlow, high = 1, 100\nfor _ in range(3):\n    print('?', (low + high) // 2, flush=True)\n"
        "    if input() == '<': high = (low + high) // 2\n    else: low = (low + high) // 2\nsys.stdout.flush()",
        "<\n>\n<\n",
        "? 50\n? 25\n? 37",
    ),
    script("no_newline_at_the_end", "import sys\nsys.stdout.write(' '.join(input()[::-1]))", "abc", "c b a"),
    script(
        "exit_deep_inside",
        "def f(n):\n    try:\n        if n == 0: exit()\n        f(n - 1)\n    finally: pass\nprint(1)\nf(50)\nprint(2)",
        "",
        "1",
    ),
    script(
        "asyncio_with_queues_and_threads",
        """
import asyncio
async def main():
    queue = asyncio.Queue()
    async def produce():
        for i in range(3): await queue.put(i); await asyncio.sleep(0.001)
        await queue.put(None)
    async def consume():
        total = 0
        while (item := await queue.get()) is not None: total += item
        return total
    _, total = await asyncio.gather(produce(), consume())
    print(total, await asyncio.wait_for(asyncio.to_thread(sum, [1, 2]), 5))
asyncio.run(main())
""",
        "",
        "3 3",
    ),
    script(
        "threads_that_talk",
        "import queue, threading\nq = queue.Queue()\nb = threading.Barrier(3)\ndef work(i):\n    b.wait(); q.put(i)\n"
        "for i in range(2): threading.Thread(target=work, args=(i,)).start()\nb.wait()\nprint(sorted([q.get(), q.get()]))",
        "",
        "[0, 1]",
    ),
    script(
        "its_own_time_limit",
        """
import signal
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late); signal.setitimer(signal.ITIMER_REAL, 0.05)
best = 0
def search():
    global best
    while True:
        best = max(best, 7)
try: search()
except Late: print(best)
""",
        "",
        "7",
    ),
    script(
        "search_until_the_time_is_over",
        "import time\nend = time.perf_counter() + 0.05\nn = 0\nwhile time.perf_counter() < end: n += 1\nprint(n > 0)",
        "",
        "True",
    ),
    script(
        "temporary_file_in_memory",
        "import tempfile\nwith tempfile.SpooledTemporaryFile(1 << 20) as f:\n    f.write(b'x'); f.seek(0); print(f.read())",
        "",
        "b'x'",
    ),
    script(
        "a_thousand_digits_of_pi",
        "from decimal import *\ngetcontext().prec = 1010\ndef arctan(x):\n    x = Decimal(x); t = s = 1 / x; n = 1\n    while t:\n        t /= -x * x; n += 2\n"
        "        if abs(t) < Decimal(10) ** -1005: break\n        s += t / n\n    return s\nprint(str(4 * (4 * arctan(5) - arctan(239)))[995:1001])",
        "",
        "420198",
    ),
    script(
        "types_and_generics",
        """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Optional, Protocol, TypedDict, TypeVar, get_type_hints
T = TypeVar("T")
class Sized(Protocol):
    def size(self) -> int: ...
class Pair(NamedTuple): a: int; b: int = 2
class Row(TypedDict): name: str
@dataclass(frozen=True, slots=True, order=True)
class Stack(Generic[T]):
    items: tuple[T, ...] = field(default_factory=tuple)
    def push(self, item: T) -> Stack[T]: return Stack((*self.items, item))
print(Stack().push(1).push(2), Pair(1), Row(name="x"), get_type_hints(Pair)["a"])
""",
        "",
        "Stack(items=(1, 2)) Pair(a=1, b=2) {'name': 'x'} <class 'int'>",
    ),
    script(
        "caches_and_dispatch",
        "from functools import *\n@cache\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\n@singledispatch\ndef g(x): return 'o'\n"
        "@g.register\ndef _(x: int): return 'i'\nprint(f(300) % 1000, g(1), g(''), f.cache_info().hits)",
        "",
        "600 i o 298",
    ),
    script(
        "its_own_source",
        "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f).strip().splitlines()[-1].strip(), __name__, __file__)",
        "",
        "return 1 __main__ solution.py",
    ),
    script(
        "its_own_module",
        "import __main__, importlib, sys\nx = 7\nprint(__main__.x, sys.modules['__main__'].x, importlib.import_module('math').tau > 6)",
        "",
        "7 7 True",
    ),
    script(
        "packages_that_are_not_there",
        "try:\n    import numpy as np\nexcept ImportError:\n    np = None\nprint(np)",
        "",
        "None",
    ),
    script(
        "its_own_tests",
        "import unittest, sys\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\n"
        "print(unittest.main(argv=['x'], exit=False).result.wasSuccessful())",
        "",
        "True",
    ),
    script(
        "log_and_warn",
        "import logging, warnings\nlogging.basicConfig(level=0)\nlogging.info('x')\nwarnings.warn('y')\nprint(1)",
        "",
        "1",
    ),
    script(
        "memory_measured",
        "import resource, tracemalloc\ntracemalloc.start()\nx = [0] * 10**5\nprint(tracemalloc.get_traced_memory()[1] > 10**5, resource.getrusage(0).ru_maxrss > 0)",
        "",
        "True True",
    ),
    script(
        "terminal_that_is_not_there",
        "import shutil, os\nprint(shutil.get_terminal_size(), os.isatty(1))",
        "",
        "os.terminal_size(columns=80, lines=24) False",
    ),
    script(
        "random_from_the_system",
        "import os, random, secrets, uuid\nprint(len(os.urandom(8)), 0 <= random.SystemRandom().random() < 1, len(secrets.token_hex(4)), len(str(uuid.uuid4())))",
        "",
        "8 True 8 36",
    ),
    script(
        "sort_in_c",
        "import ctypes\nlibc = ctypes.CDLL(None)\na = (ctypes.c_int * 3)(3, 1, 2)\nF = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))\n"
        "libc.qsort(a, 3, 4, F(lambda x, y: x[0] - y[0]))\nprint(*a)",
        "",
        "1 2 3",
    ),
    script(
        "compress_and_hash",
        "import base64, hashlib, zlib\nx = b'a' * 10**6\nprint(len(zlib.decompress(zlib.compress(x))), hashlib.sha256(b'').hexdigest()[:8], base64.b64encode(b'hi').decode())",
        "",
        "1000000 e3b0c442 aGk=",
    ),
    script(
        "dates",
        "from datetime import *\nd = datetime.strptime(input(), '%d.%m.%Y')\nprint(d.strftime('%Y-%m-%d'), (d + timedelta(days=1)).weekday())",
        "28.02.2024",
        "2024-02-28 3",
    ),
    script("output_of_its_own", "import os\nout = os.fdopen(1, 'w')\nout.write('x')", "", "x"),
    script("binary_output_of_its_own", "out = open(1, 'wb')\nout.write(b'x')", "", "x"),
    script("input_left_unread", "n = int(input())\nprint(n)", "7\n" * 10_000, "7"),
    script(
        "input_and_output_replaced",
        "import io, sys\nprint(input())\nsys.stdout.flush()\nsys.stdin.close()\nsys.stdout = sys.stderr = None",
        "x",
        "x",
    ),
    script(
        "sieve",
        "n = 10**6\ns = bytearray([1]) * n\ns[:2] = b'\\0\\0'\nfor i in range(2, 1000):\n    if s[i]: s[i*i::i] = bytes(len(range(i*i, n, i)))\nprint(sum(s))",
        "",
        "78498",
    ),
    Program(
        "linked_list_of_leetcode",
        "class Solution:\n    def f(self, values: List[int]) -> List[int]:\n        head = None\n        for v in values: head = ListNode(v, head)\n"
        "        out = []\n        while head: out.append(head.val); head = head.next\n        return out",
        [[1, 2, 3]],
        [3, 2, 1],
        "f",
        LEETCODE_PRELUDE,
    ),
    Program(
        "tree_and_usual_names_of_leetcode",
        "class Solution:\n    def f(self, root: List[Optional[int]]) -> int:\n        @lru_cache(None)\n        def build(i):\n"
        "            return TreeNode(root[i], build(2 * i + 1), build(2 * i + 2)) if i < len(root) and root[i] is not None else None\n"
        "        best = -inf\n        q = deque([build(0)])\n        while q:\n            n = q.popleft()\n            best = max(best, n.val)\n"
        "            q.extend(c for c in (n.left, n.right) if c)\n        return best + gcd(4, 6) + Counter('aab')['a']",
        [[1, 5, 3, None, 4]],
        9,
        "f",
        LEETCODE_PRELUDE,
    ),
    Program("changes_its_argument", "class Solution:\n    def f(self, a):\n        a.sort()", [[2, 1]], None, "f"),
    Program(
        "numbers_of_other_kinds",
        "import enum\nclass C(enum.IntEnum):\n    A = 3\ndef f(n):\n    return [C.A, True, n / 2, 10**30]",
        [4],
        [3, 1, 2, 10**30],
        "f",
    ),
    Program(
        "state_in_the_object",
        "class Solution:\n    def __init__(self):\n        self.seen = {}\n    def f(self, n):\n        self.seen[n] = 1\n        return len(self.seen)",
        [5],
        1,
        "f",
    ),
    Program(
        "nested_functions_and_closures",
        "def f(n):\n    total = 0\n    def add(i):\n        nonlocal total\n        total += i\n    any(add(i) for i in range(n))\n    return total",
        [5],
        10,
        "f",
    ),
]
