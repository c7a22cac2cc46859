# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of gRPC methods at a socket whose other side says what a test wants it to say."""

import socket
import struct
import threading

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.grpc import StatusError, call, decoded, encoded
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError

METHOD = "/runtime.v1.RuntimeService/Version"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


def frame(kind, flags, content, stream=1):
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def plain(text):
    return bytes([len(text)]) + text.encode()


def header(name, value):
    """A header that is spelled out, with a table (which is switched off) or without."""
    return b"\x40" + plain(name) + plain(value)


def trailers(status, message=""):
    block = header("grpc-status", status) + (header("grpc-message", message) if message else b"")
    return frame(HEADERS, END_STREAM | END_HEADERS, block)


def body(message, flags=0):
    return frame(DATA, flags, b"\0" + struct.pack(">I", len(message)) + message)


OK_HEADERS = frame(HEADERS, END_HEADERS, b"\x20\x88\x5f" + plain("application/grpc"))
ANSWER = encoded({1: "0.1.0", 5: 300})
# RFC 7541, C.4.1: "www.example.com"; C.6.1: "private"
HUFFMAN_URL, HUFFMAN_PRIVATE = bytes.fromhex("8cf1e3c2e5f23a6ba0ab90f4ff"), bytes.fromhex("85aec3771a4b")


@pytest.fixture
def serve(tmp_path):
    """A function that has one connection answered with some bytes, and returns the socket and what was asked."""
    path, asked, threads = str(tmp_path / "socket"), bytearray(), []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    done = threading.Event()

    def answer(content, ends):
        connection, _address = listener.accept()
        with connection:
            connection.settimeout(5)
            while METHOD.encode() not in asked:
                asked.extend(connection.recv(1 << 16))
            try:
                connection.sendall(content)
            except OSError:
                return
            if not ends:
                done.wait(5)

    def start(content, ends=False):
        threads.append(threading.Thread(target=answer, args=(content, ends)))
        threads[0].start()
        return path, asked

    yield start
    done.set()
    threads[0].join()
    listener.close()


GOOD = {
    "plain": OK_HEADERS + body(ANSWER) + trailers("0"),
    "settings and pings between": frame(SETTINGS, 0, b"", 0) + frame(PING, 0, b"12345678", 0) + OK_HEADERS + body(ANSWER) + trailers("0"),
    "in pieces": OK_HEADERS + frame(DATA, 0, body(ANSWER)[9:12]) + frame(DATA, 0, body(ANSWER)[12:]) + trailers("0"),
    "padded": OK_HEADERS + frame(DATA, PADDED, b"\x02" + body(ANSWER)[9:] + b"\0\0") + trailers("0"),
    "headers in pieces": OK_HEADERS + body(ANSWER) + frame(HEADERS, END_STREAM, header("grpc-status", "0")[:5])
    + frame(CONTINUATION, END_HEADERS, header("grpc-status", "0")[5:]),
    "data of another stream": OK_HEADERS + frame(DATA, 0, b"other", 3) + body(ANSWER) + trailers("0"),
}  # fmt: skip


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
def test_an_answer_is_read_however_it_is_framed(serve, content):
    path, asked = serve(content)
    assert decoded(call(path, METHOD, encoded({1: "v1"}), 5)) == {1: [b"0.1.0"], 5: [300]}
    assert asked.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") and b"application/grpc" in asked


REFUSED = {
    "a status": (trailers("5", "not found"), 5, "Version: not found"),
    "percent-encoded": (trailers("2", "a%20b%0Ac"), 2, "a b\nc"),
    "Huffman's code": (frame(HEADERS, 5, header("grpc-status", "2") + b"\x40" + plain("grpc-message") + HUFFMAN_URL), 2, "www.example.com"),
    "no status": (frame(HEADERS, 5, b"\x88" + b"\x40" + plain("x") + HUFFMAN_PRIVATE), None, "no status"),
}


@pytest.mark.parametrize(("content", "status", "text"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_has_its_status_and_its_text(serve, content, status, text):
    with pytest.raises(StatusError, match=text) as raised:
        call(serve(content)[0], METHOD, b"", 5)
    assert raised.value.status == status


BROKEN = {
    "ends too early": (OK_HEADERS, "ended before"),
    "a long frame": (struct.pack(">I", 1 << 20)[1:] + b"\0\0\0\0\0\1", "a frame has 1048576 bytes"),
    "more than it may have": (OK_HEADERS + frame(DATA, 0, bytes(1 << 14)) * 513, "more than 8 MiB"),
    "settings without end": (frame(SETTINGS, 1, bytes(1 << 14), 0) * 513, "more than 8 MiB"),
    "a message that is cut off": (OK_HEADERS + frame(DATA, 0, b"\0\0\0\0\x09abc") + trailers("0"), "cut off"),
    "a compressed message": (OK_HEADERS + frame(DATA, 0, b"\1\0\0\0\0") + trailers("0"), "compressed"),
    "closed": (frame(GOAWAY, 0, struct.pack(">II", 0, 11), 0), "closed with error 11"),
    "reset": (frame(RESET, 0, struct.pack(">I", 7)), "closed with error 7"),
    "a header that is cut off": (frame(HEADERS, 5, b"\x40\x0bgrpc"), "cut off"),
    "a number without end": (frame(HEADERS, 5, b"\x7f" + b"\xff" * 20), "64 bits"),
    "another protocol": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame has"),
}


@pytest.mark.parametrize(("content", "text"), BROKEN.values(), ids=BROKEN)
def test_a_hostile_answer_is_an_error_and_nothing_else(serve, content, text):
    with pytest.raises(CommandError, match=text):
        call(serve(content, ends="ended" in text)[0], METHOD, b"", 5)


def test_a_silent_service_costs_its_time_limit(serve):
    with pytest.raises(CommandError, match=r"did not answer .*Version within 0.2 s"):
        call(serve(OK_HEADERS)[0], METHOD, b"", 0.2)


def test_what_is_no_service_is_named(tmp_path):
    with pytest.raises(CommandError, match="nothing could not be asked"):
        call(str(tmp_path / "nothing"), METHOD, b"", 1)


@pytest.mark.parametrize("message", [b"\x0a\x05abc", b"\x0b", b"\x08", b"\x08" + b"\xff" * 10, b"\x0a"])
def test_a_broken_message_is_refused(message):
    with pytest.raises(ValueError, match="a message"):
        decoded(message)
