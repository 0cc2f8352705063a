"""Unpacks LiveCodeBench's private tests: JSON, or a pickled JSON string, compressed by zlib, in base64.

No pickle is loaded. These contain a single string, so the pickle's opcodes are read one by one, and any other opcode
is an error: no global is resolved, no object built, and no memory allocated by a number in it.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib

from pettingllms_envs.datasets.rows import BadRow


MAX_BYTES = 1 << 28
"""Largest unpacked size in bytes: it limits what a small file can do, and is far above any test set."""

_TEXTS = frozenset({"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_FRAME = frozenset({"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"})


def unpacked(blob: str, max_bytes: int = MAX_BYTES) -> str:
    """The JSON in a column, itself or in base64. A pickle of anything but a string, or a larger one, is a `BadRow`."""
    if blob.lstrip()[:1] in ("[", "{"):
        return blob
    try:
        packed = base64.b64decode(blob, validate=True)
        inflate = zlib.decompressobj()
        pickled = inflate.decompress(packed, max_bytes)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise BadRow(f"the private tests are neither JSON nor base64 of zlib ({error})") from error
    if inflate.unconsumed_tail or not inflate.eof:
        said = f"unpack to more than {max_bytes} bytes" if inflate.unconsumed_tail else "are cut off"
        raise BadRow(f"the private tests {said}")
    return _text(pickled)


def _text(pickled: bytes) -> str:
    found: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in _TEXTS and not found:
                found.append(str(argument))
            elif opcode.name not in _FRAME:
                raise BadRow(f"the private tests are a pickle with {opcode.name}; expected one text and nothing else")
    except BadRow:
        raise
    except ValueError as error:
        raise BadRow(f"the private tests are no pickle ({error})") from error
    if not found:
        raise BadRow("the private tests are a pickle without a text")
    return found[0]
