# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a tar that somebody sent, member by member, with limits on memory, time and the number of headers.

:mod:`tarfile` reads extended headers as a whole and remembers every member, so a small file can fill memory; it is slow besides.
Here a header is at most :data:`HEADER` bytes, nothing is remembered, and what is skipped counts. Formats: pax(1), "ustar Interchange
Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

import bz2
import lzma
import time
import zlib
from typing import IO, Any, Callable, Dict, Iterator, NamedTuple, Tuple

HEADERS = 300_000
"""How many headers an archive may have, those of skipped members included."""
HEADER = 64 << 10
"""Bytes of the largest extended header (pax, or a long name of GNU tar)."""
EXTENDED = 64 << 20
"""Bytes of all extended headers."""
PASSED = 4 << 30
"""Bytes that an archive may have when it is decompressed, skipped members included."""
SECONDS = 120
"""How long reading one archive may take."""
_DICTIONARY = 256 << 20
"""Bytes of memory that decompressing xz may take."""
_PIECE = 128 << 10
_BLOCK = 512
_SPARSE, _SPARSE_NAME = b"GNU.sparse.", "GNU.sparse.name"
_READ = frozenset((b"path", b"linkpath", b"size", _SPARSE_NAME.encode()))
_DIGITS = 18
BROKEN = (EOFError, zlib.error, lzma.LZMAError, MemoryError)
"""What decompressing a broken archive raises besides ``OSError`` and ``ValueError``."""
_KINDS = {b"0": "file", b"\0": "file", b"7": "file", b"5": "folder", b"2": "link", b"S": "sparse"}
_WITHOUT_CONTENT = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))
_CHECKSUM = slice(148, 156)


class Member(NamedTuple):
    """One member: its name, its ``kind`` (file, folder, link, sparse, other), ``size`` in bytes, permissions, and a link's ``target``."""

    name: str
    kind: str
    size: int
    mode: int
    target: str


class Tar:
    """The members of a tar, in their order, from a file that is perhaps compressed with gzip, bzip2 or xz.

    :meth:`content` yields the content of the member that the iteration is at. Raises ``ValueError`` with a sentence for what is beyond a
    limit or no tar, ``OSError`` or one of :data:`BROKEN` for what cannot be decompressed.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._path = path
        self._stream = _Stream(file, path)
        self._headers = 0
        self._extended_bytes = 0
        self._left = 0
        """Bytes of the current member, with its padding, that were not read yet."""
        self._size = 0

    def __iter__(self) -> Iterator[Member]:
        extended: dict[str, str] = {}
        while True:
            self._stream.skip(self._left)
            self._left = 0
            block = self._header_block()
            if block is None:
                return
            kind, size = block[156:157], self._number(block[124:136])
            if kind in (b"x", b"X"):
                extended.update(self._pax(self._extended(size)))
            elif kind in (b"L", b"K"):
                extended["path" if kind == b"L" else "linkpath"] = _text(self._extended(size))
            elif kind == b"g":
                self._extended(size)
            else:
                yield self._member(block, kind, int(extended["size"]) if "size" in extended else size, extended)
                extended = {}

    def content(self) -> Iterator[bytes]:
        """Yield the content of the current member in pieces."""
        while self._size:
            piece = self._stream.read(min(self._size, _PIECE))
            if not piece:
                raise self._stream.cut()
            self._size -= len(piece)
            self._left -= len(piece)
            yield piece

    def _member(self, block: bytes, kind: bytes, size: int, extended: dict[str, str]) -> Member:
        if kind == b"S":
            self._skip_sparse_headers(block)
        self._size = 0 if kind in _WITHOUT_CONTENT else size
        self._left = -(-self._size // _BLOCK) * _BLOCK
        name = extended.get(_SPARSE_NAME) or extended.get("path") or _name(block)
        found = "sparse" if {"sparse", _SPARSE_NAME} & set(extended) else _KINDS.get(kind, "other")
        if kind == b"\0" and name.endswith("/"):
            found = "folder"  # tar of Unix V7 knows no other way to say so
        return Member(name, found, size, self._number(block[100:108]), extended.get("linkpath") or _text(block[157:257]))

    def _number(self, field: bytes) -> int:
        """Return a number of a header: octal digits, or, behind a mark, bytes."""
        if field[0] == 0x80:
            return int.from_bytes(field[1:], "big")
        digits = field.split(b"\0")[0].strip()
        if digits.isdigit() or not digits:
            try:
                return int(digits or b"0", 8)
            except ValueError:
                pass
        raise ValueError("%s cannot be read as an archive: a header has '%s' as a number" % (self._path, shown(_text(digits))))

    def _pax(self, data: bytes) -> Iterator[Tuple[str, str]]:
        """Yield those of the records ``<length> <key>=<value>`` of a pax header that say what a member is."""
        at = 0
        while at < len(data) and data[at]:
            digits = data[at : at + 10].split(b" ")[0]
            end = at + int(digits) if digits.isdigit() else 0
            key, equals, value = data[at + len(digits) + 1 : end].partition(b"=")
            size = value[:-1] if key == b"size" else b"0"
            if not equals or not value.endswith(b"\n") or end > len(data) or not size.isdigit() or len(size) > _DIGITS:
                raise ValueError("%s cannot be read as an archive: it has a damaged pax header" % self._path)
            if key in _READ or key.startswith(_SPARSE):
                yield key.decode() if key in _READ else "sparse", value[:-1].decode("utf-8", "surrogateescape")
            at = end

    def _skip_sparse_headers(self, block: bytes) -> None:
        more = block[482]
        while more:
            self._headers += 1
            following = self._stream.read(_BLOCK)
            if len(following) < _BLOCK or self._headers > HEADERS:
                raise self._stream.cut()
            more = following[504]

    def _header_block(self) -> bytes | None:
        """Return the next header, None at the end of the archive."""
        block = self._stream.read(_BLOCK)
        if len(block) == _BLOCK and block.count(0) < _BLOCK:
            self._headers += 1
            if self._headers > HEADERS:
                raise ValueError("%s has more than %d members: it is not opened" % (self._path, HEADERS))
            if sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ") != self._number(block[_CHECKSUM]):
                raise ValueError("%s cannot be read as an archive: it is no tar, or it is damaged" % self._path)
            return block
        if len(block) not in (0, _BLOCK) or not self._headers:
            raise self._stream.cut()
        return None

    def _extended(self, size: int) -> bytes:
        self._extended_bytes += size
        if size > HEADER or self._extended_bytes > EXTENDED:
            text = "%s has an extended header of %d bytes, or more than %d MiB of them; the limit of one is %d: it is not opened"
            raise ValueError(text % (self._path, size, EXTENDED >> 20, HEADER))
        data = self._stream.read(size)
        if len(data) < size:
            raise self._stream.cut()
        self._left = -size % _BLOCK
        return data


class _Stream:
    """The bytes of a file, decompressed; their number and the time they take have limits."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._path = path
        self._deadline = time.monotonic() + SECONDS
        self._pieces = self._decompressed(file)
        self._buffer, self._at = b"", 0
        self._passed = 0

    def cut(self) -> ValueError:
        return ValueError("%s cannot be read as an archive: it ends too early" % self._path)

    def read(self, count: int) -> bytes:
        while len(self._buffer) - self._at < count and self._load():
            pass
        found = self._buffer[self._at : self._at + count]
        self._at += len(found)
        return found

    def skip(self, count: int) -> None:
        while count:
            step = min(count, len(self._buffer) - self._at)
            self._at += step
            count -= step
            if count and not self._load():
                raise self.cut()

    def _load(self) -> bool:
        piece = next(self._pieces, b"")
        self._passed += len(piece)
        if self._passed > PASSED:
            text = "%s has more than %d MiB when it is decompressed: it is not opened. Unpack it, and name the folder"
            raise ValueError(text % (self._path, PASSED >> 20))
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)

    def _decompressed(self, file: IO[bytes]) -> Iterator[bytes]:
        data = file.read(_PIECE)
        magic, make = next(((magic, make) for magic, make in _FORMATS.items() if data.startswith(magic)), (b"", None))
        if make is None:
            while data:
                self._in_time()
                yield data
                data = file.read(_PIECE)
            return
        while data.startswith(magic):  # what follows the end of a compressed stream is another one, or nothing that counts
            decompressor = make()
            while not decompressor.eof:
                self._in_time()
                if decompressor.needs_input and not data:
                    data = file.read(_PIECE)
                    if not data:
                        raise self.cut()
                piece = decompressor.decompress(data, _PIECE)
                data = b""
                if piece:
                    yield piece
            data = decompressor.unused_data
            data += file.read(_PIECE) if len(data) < len(magic) else b""

    def _in_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise ValueError("%s could not be read within %d s: it is not opened. Unpack it, and name the folder" % (self._path, SECONDS))


class _Gzip:
    """zlib's decompressor with the interface of those of bzip2 and xz."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._full = False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._inner.unconsumed_tail

    def decompress(self, data: bytes, most: int) -> bytes:
        found = self._inner.decompress(self._inner.unconsumed_tail + data, most)
        self._full = len(found) == most
        return found


_FORMATS: Dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": _Gzip,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=_DICTIONARY),
}


def _name(block: bytes) -> str:
    prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
    return "/".join(filter(None, (prefix, _text(block[:100]))))


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode("utf-8", "surrogateescape")


def shown(text: str) -> str:
    """Return what somebody sent as it can be printed: without control characters, and not longer than a line."""
    short = text if len(text) <= 120 else text[:120] + "…"
    return short if short.isprintable() else ascii(short)[1:-1]
