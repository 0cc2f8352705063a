"""Modules of the standard library that the server imports before the first program, so that programs start faster.

Each costs every process some memory to map, so by default only those used in programming contests are imported. Where
no file may be opened at all, everything that a program could need must be imported before.
"""

from __future__ import annotations


USUAL = [
    *("abc", "array", "bisect", "cmath", "collections", "collections.abc", "contextlib", "copy", "datetime"),
    *("decimal", "fractions", "functools", "heapq", "io", "itertools", "json", "linecache", "math", "numbers"),
    *("operator", "os", "queue", "random", "re", "statistics", "string", "struct", "sys", "textwrap", "threading"),
    *("time", "traceback", "types", "typing"),
]

ALL = [
    *("_strptime", "_threading_local", "argparse", "ast", "asyncio", "base64", "bdb", "binascii", "bz2", "cProfile"),
    *("calendar", "cmd", "code", "codecs", "colorsys", "concurrent.futures.thread", "configparser", "csv", "ctypes"),
    *("ctypes.util", "dataclasses", "difflib", "dis", "doctest", "email.message", "encodings.ascii"),
    *("encodings.cp1251", "encodings.cp1252", "encodings.cp437", "encodings.hex_codec", "encodings.idna"),
    *("encodings.latin_1", "encodings.punycode", "encodings.raw_unicode_escape", "encodings.rot_13"),
    *("encodings.unicode_escape", "encodings.utf_16", "encodings.utf_32", "encodings.utf_7", "encodings.utf_8_sig"),
    *("enum", "errno", "faulthandler", "fileinput", "fnmatch", "gc", "getopt", "getpass", "glob", "graphlib", "grp"),
    *("gzip", "hashlib", "hmac", "html", "html.parser", "importlib.metadata", "importlib.resources"),
    *("importlib.util", "inspect", "ipaddress", "keyword", "locale", "logging", "lzma", "marshal", "mmap"),
    *("multiprocessing.pool", "opcode", "optparse", "pathlib", "pdb", "pickle", "pickletools", "pkgutil", "platform"),
    *("posixpath", "pprint", "profile", "pstats", "pwd", "reprlib", "resource", "runpy", "sched", "secrets"),
    *("select", "selectors", "shelve", "shlex", "shutil", "signal", "socket", "sqlite3", "ssl", "stat", "stringprep"),
    *("subprocess", "symtable", "tempfile", "termios", "timeit", "token", "tokenize", "tomllib", "trace"),
    *("tracemalloc", "tty", "unicodedata", "unittest", "unittest.mock", "urllib.parse", "uuid", "warnings"),
    *("weakref", "xml.etree.ElementTree", "zipfile", "zipimport", "zlib", "zoneinfo"),
]
