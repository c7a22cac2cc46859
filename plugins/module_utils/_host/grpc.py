# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call of a gRPC method over a unix socket, without a gRPC library.

Sources: "gRPC over HTTP2"; RFC 9113 for frames; RFC 7541 for headers. The dynamic table of headers is switched off. Messages are protocol
buffers, read and written field by field (protobuf.dev, "Encoding").
"""

from __future__ import annotations

import socket
import struct
import time
import urllib.parse
from typing import Dict, Iterator, List, Union

from .host import CommandError

NOT_FOUND, UNIMPLEMENTED = 5, 12
"""Statuses of gRPC."""
Value = Union[str, bytes, int]
Fields = Dict[int, List[Union[bytes, int]]]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 0x20
_MOST = 4 << 20
"""Bytes of an answer: a description of a container has some 50 KiB, and gRPC's own limit is 4 MiB."""
_FRAME = 1 << 14
_SYMBOLS = (
    (5, "012aceiost"),
    (6, " %-./3456789=A_bdfghlmnpru"),
    (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, "&*,;XZ"),
    (10, '!"()?'),
    (11, "'+|"),
    (12, "#>"),
    (13, "\0$@[]~"),
    (14, "^}"),
    (15, "<`{"),
    (19, "\\"),
)
"""Printable characters, the only ones in headers of gRPC, by the bits of their Huffman codes, which count up in this order."""


class StatusError(ValueError):
    """A service refused a call: ``status`` is that of gRPC, None where it sent none."""

    def __init__(self, text: str, status: int | None) -> None:
        ValueError.__init__(self, text)
        self.status = status


def encoded(fields: dict[int, Value]) -> bytes:
    """Return a message; texts and inner messages, or numbers, by the numbers of their fields."""
    message = b""
    for number, value in fields.items():
        content = value.encode() if isinstance(value, str) else value
        if isinstance(content, int):
            message += _varint(number << 3) + _varint(content)
        else:
            message += _varint(number << 3 | 2) + _varint(len(content)) + content
    return message


def decoded(message: bytes) -> Fields:
    """Return the fields of a message by their numbers: bytes or numbers. Raises ``ValueError``."""
    fields: Fields = {}
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        kind = key & 7
        value: bytes | int
        if kind == 0:
            value, place = _read_varint(message, place)
        elif kind in (1, 2, 5):
            size, place = _read_varint(message, place) if kind == 2 else (8 if kind == 1 else 4, place)
            value, place = message[place : place + size], place + size
        else:
            raise ValueError("a message has a field of unknown type %d" % kind)
        if place > len(message):
            raise ValueError("a message is cut off")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        if place >= len(message):
            raise ValueError("a message is cut off")
        byte, place = message[place], place + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("a message has a number of more than 64 bits")


def call(path: str, method: str, message: bytes, seconds: float) -> bytes:
    """Return the answer of a method, such as ``/runtime.v1.RuntimeService/Version``, at a socket.

    Raises :class:`StatusError` where the service refuses, :class:`CommandError` where it does not answer in time or talks otherwise.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            return _Call(connection, path, method, time.monotonic() + seconds).answer(message)
    except StatusError:
        raise
    except socket.timeout:
        raise CommandError("%s did not answer %s within %s s" % (path, method, seconds))
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise CommandError("%s could not be asked for %s: %s" % (path, method, error))


class _Call:
    """One stream on a connection of its own. ``deadline``: of a monotonic clock."""

    def __init__(self, connection: socket.socket, path: str, method: str, deadline: float) -> None:
        self.connection = connection
        self.method = method
        self.deadline = deadline
        self._limit()
        connection.connect(path)

    def _limit(self) -> None:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise socket.timeout()
        self.connection.settimeout(remaining)

    def answer(self, message: bytes) -> bytes:
        """Send a message, and return the one that comes back."""
        if len(message) + 5 > _FRAME:
            raise ValueError("the message has %d bytes" % len(message))
        settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, _MOST)  # no table of headers, no pushes, a window for one answer
        sent = _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, struct.pack(">I", _MOST))
        sent += _frame(_HEADERS, _END_HEADERS, 1, self._request())
        self._send(sent + _frame(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
        body = bytearray()
        headers: dict[str, str] = {}
        for kind, content in self._parts():
            if kind == _DATA:
                body += content
            else:
                headers.update(_headers(content))
        text = headers.get("grpc-status", "")
        if text != "0":
            why = urllib.parse.unquote(headers.get("grpc-message", "")) or "no status"
            raise StatusError("%s: %s" % (self.method.rpartition("/")[2], why[:400]), int(text) if text.isdigit() else None)
        if body[:1] != b"\0" or len(body) < 5 or len(body) - 5 != struct.unpack(">I", body[1:5])[0]:
            raise ValueError("the answer is cut off or compressed")
        return bytes(body[5:])

    def _request(self) -> bytes:
        """Return the headers: POST and http by their numbers in the static table, the others spelled out."""
        timeout = "%dm" % max(1, 1000 * (self.deadline - time.monotonic()))
        others = {"content-type": "application/grpc", "te": "trailers", "grpc-timeout": timeout}
        texts = b"".join(b"\0" + _plain(name) + _plain(value) for name, value in others.items())
        return b"\x83\x86\x04" + _plain(self.method) + b"\x01" + _plain("localhost") + texts

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        """Yield data and blocks of headers of the stream until it ends."""
        total, block, is_last = 0, b"", False
        while True:
            head = self._receive(9)
            size, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], struct.unpack(">I", head[5:])[0] & 0x7FFFFFFF
            if size > _FRAME:
                raise ValueError("a frame has %d bytes" % size)
            content = self._receive(size)
            total += size + 9
            if total > 2 * _MOST:
                raise ValueError("the answer has more than %d MiB" % (2 * _MOST >> 20))
            if kind == _SETTINGS and not flags & _ACK:
                self._send(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _PING and not flags & _ACK:
                self._send(_frame(_PING, _ACK, 0, content))
            elif kind == _GOAWAY or (kind == _RESET and stream == 1):
                code = content[:4] if kind == _RESET else content[4:8]
                raise ValueError("the connection was closed with error %d of HTTP/2" % struct.unpack(">I", code)[0])
            elif stream == 1 and kind in (_DATA, _HEADERS, _CONTINUATION):
                is_last = bool(flags & _END_STREAM) if kind != _CONTINUATION else is_last
                content = _unpadded(kind, flags, content)
                if kind == _DATA:
                    yield kind, content
                else:
                    block += content
                    if not flags & _END_HEADERS:
                        continue
                    yield _HEADERS, block
                    block = b""
                if is_last:
                    return

    def _receive(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            self._limit()
            chunk = self.connection.recv(size - len(content))
            if not chunk:
                raise ValueError("the connection ended before the answer")
            content += chunk
        return content

    def _send(self, content: bytes) -> None:
        self._limit()
        self.connection.sendall(content)


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + content


def _unpadded(kind: int, flags: int, content: bytes) -> bytes:
    if kind == _CONTINUATION:
        return content
    begin, end = (1, len(content) - content[0]) if flags & _PADDED else (0, len(content))
    return content[begin + (5 if kind == _HEADERS and flags & _PRIORITY else 0) : end]


def _plain(text: str) -> bytes:
    """Return a text of fewer than 127 bytes as HPACK has it without Huffman's code."""
    return bytes([len(text)]) + text.encode("ascii")


def _headers(block: bytes) -> dict[str, str]:
    """Return the headers that a block spells out; those of the static table say nothing about the status of gRPC."""
    headers, place = {}, 0
    while place < len(block):
        first = block[place]
        if first & 0x80 or first & 0xE0 == 0x20:  # a whole header of the table, or its size
            _number, place = _integer(block, place, 7 if first & 0x80 else 5)
            continue
        index, place = _integer(block, place, 6 if first & 0x40 else 4)
        name, place = ("", place) if index else _text(block, place)
        value, place = _text(block, place)
        headers[name] = value
    return headers


def _integer(block: bytes, place: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    number, place = block[place] & most, place + 1
    if number < most:
        return number, place
    rest, place = _read_varint(block, place)
    return number + rest, place


def _text(block: bytes, place: int) -> tuple[str, int]:
    size, begin = _integer(block, place, 7)
    content = block[begin : begin + size]
    if len(content) < size:
        raise ValueError("a header is cut off")
    return (_from_huffman(content) if block[place] & 0x80 else content.decode("latin-1")), begin + size


def _from_huffman(content: bytes) -> str:
    """Return a text; padding, and what no header of gRPC has, ends it."""
    codes, code, length = {}, 0, 0
    for bits, symbols in _SYMBOLS:
        code, length = code << bits - length, bits
        for symbol in symbols:
            codes[(bits, code)] = symbol
            code += 1
    text, length, code = [], 0, 0
    for bit in (byte >> shift & 1 for byte in content for shift in range(7, -1, -1)):
        length, code = length + 1, code << 1 | bit
        if (length, code) in codes:
            text.append(codes[(length, code)])
            length = code = 0
    return "".join(text)
