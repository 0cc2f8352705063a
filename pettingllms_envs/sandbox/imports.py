"""Modules of the standard library that the server imports before the first program, so that programs need not.

Each costs every process some memory to map, so by default only what solutions of programming contests use is here. Where
no file may be opened at all, everything that a program could want must be.
"""

from __future__ import annotations


USUAL = (
    "abc array bisect cmath collections collections.abc contextlib copy datetime decimal fractions functools heapq io"
    " itertools json linecache math numbers operator os queue random re statistics string struct sys textwrap threading"
    " time traceback types typing"
).split()

ALL = (
    "argparse ast asyncio base64 binascii bz2 calendar codecs colorsys concurrent.futures.thread configparser csv"
    " ctypes dataclasses difflib dis email.message encodings.ascii encodings.idna encodings.latin_1 encodings.utf_16"
    " encodings.utf_32 encodings.cp1252 enum errno fileinput fnmatch gc getopt glob graphlib gzip hashlib hmac html"
    " html.parser importlib.metadata importlib.resources inspect ipaddress keyword locale logging lzma marshal"
    " multiprocessing.pool opcode optparse pathlib pickle pickletools platform posixpath pprint pkgutil reprlib"
    " resource runpy sched secrets select selectors shelve shlex shutil signal socket sqlite3 ssl stat stringprep"
    " subprocess symtable tempfile timeit token tokenize tomllib trace tracemalloc unicodedata unittest"
    " unittest.mock urllib.parse uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo"
    " encodings.punycode encodings.unicode_escape encodings.raw_unicode_escape encodings.hex_codec encodings.rot_13"
).split()
