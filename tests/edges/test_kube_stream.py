"""Lines of a watch are put together however the network cuts them."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.adapters.kube.connection import Stream


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


def test_a_last_line_without_its_end_is_an_error() -> None:
    found = streamed([b"one\ntw"]).lines()
    assert next(found) == b"one"
    with pytest.raises(http.client.IncompleteRead):
        next(found)


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
        with pytest.raises(TimeoutError, match="no complete event"):
            next(Stream(response, near, 0.3).lines())
    finally:
        stop.set()
