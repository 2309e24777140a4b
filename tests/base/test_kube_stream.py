"""Lines of a watch are put together however the network cuts them."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kube.connection import Chunks, Stream


def streamed(parts: list[bytes], idle_seconds: float = 5.0) -> Stream:
    """A stream over a real socket whose other end sends these pieces and closes."""
    near, far = socket.socketpair()

    def send() -> None:
        with far:
            far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for part in parts:
                far.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            far.sendall(b"0\r\n\r\n")

    threading.Thread(target=send, daemon=True).start()
    response = http.client.HTTPResponse(near)
    response.begin()
    return Stream(response, near, idle_seconds)


@settings(max_examples=60)
@given(lines=st.lists(st.binary(min_size=1, max_size=30).map(lambda b: b.replace(b"\n", b"_"))), cuts=st.data())
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], cuts: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    places = sorted(cuts.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=12)))
    edges = [0, *(p for p in places if p < len(text)), len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert list(streamed(parts).lines()) == lines


@given(pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=8), cuts=st.data())
def test_chunks_give_the_body_however_the_network_cuts_them(pieces: list[bytes], cuts: st.DataObject) -> None:
    coded = b"".join(b"%x;part=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    places = sorted(cuts.draw(st.sets(st.integers(1, len(coded) - 1), max_size=20)))
    chunks = Chunks()
    body = b"".join(chunks.payload(coded[a:b]) for a, b in itertools.pairwise([0, *places, len(coded)]))
    assert body == b"".join(pieces)
    assert chunks.ended


@pytest.mark.parametrize("coded", [b"zz\r\n", b"\r\n", b"-1\r\n", b"2\r\nabc\r\n", b"f" * 13 + b"\r\n", b"1" * 2000])
def test_what_is_not_in_chunks_is_an_error(coded: bytes) -> None:
    with pytest.raises(http.client.HTTPException, match="not chunked"):
        Chunks().payload(coded)


def test_a_body_that_breaks_off_between_chunks_is_an_error() -> None:
    near, far = socket.socketpair()
    with far:
        far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
    response = http.client.HTTPResponse(near)
    response.begin()
    datas = Stream(response, near, 5.0).lines()
    assert next(datas) == b"one"
    with pytest.raises(http.client.IncompleteRead):
        next(datas)


def test_lines_that_follow_others_are_gathered_and_the_first_one_is_not() -> None:
    near, far = socket.socketpair()
    far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    response = http.client.HTTPResponse(near)
    response.begin()
    far.sendall(b"2\r\na\n\r\n")
    datas = Stream(response, near, 5.0).lines(gather_seconds=0.3)
    assert next(datas) == b"a"  # nothing is waited for before it
    far.sendall(b"2\r\nb\n\r\n")
    later = threading.Timer(0.1, lambda: far.sendall(b"2\r\nc\n\r\n0\r\n\r\n"))
    later.start()
    began = time.monotonic()
    assert list(datas) == [b"b", b"c"]
    later.join()
    assert time.monotonic() - began >= 0.3  # the time in which they were left


def test_a_last_line_without_its_end_is_an_error() -> None:
    datas = streamed([b"one\ntw"]).lines()
    assert next(datas) == b"one"
    with pytest.raises(http.client.IncompleteRead):
        next(datas)


def test_a_line_that_trickles_is_as_silent_as_none() -> None:
    near, far = socket.socketpair()
    stop = threading.Event()

    def trickle() -> None:
        far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not stop.wait(0.02):
            far.sendall(b"1\r\nx\r\n")

    threading.Thread(target=trickle, daemon=True).start()
    response = http.client.HTTPResponse(near)
    response.begin()
    try:
        with pytest.raises(TimeoutError, match="no complete watch event"):
            next(Stream(response, near, 0.3).lines())
    finally:
        stop.set()
