from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotenant.enforcer.runtime.messages import message_classes, nri
from cotenant.enforcer.runtime.messages import ttrpc as body
from cotenant.enforcer.runtime.nri import ttrpc

MESSAGES = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.integers(0, 2**32 - 1), st.binary(max_size=9000)), min_size=1, max_size=5
)


@settings(max_examples=40)
@given(MESSAGES, st.integers(1, 5000))
@example([(1, 1, b"x" * 70_000)], 4096)
def test_messages_arrive_whole_however_their_bytes_were_cut(sent: list[tuple[int, int, bytes]], step: int) -> None:
    messages = [(c, ttrpc.Message(stream, ttrpc.REQUEST, data)) for c, stream, data in sent]
    wire = b"".join(ttrpc.frames(c, message) for c, message in messages)
    trunk = ttrpc.Trunk()
    decoded = [m for at in range(0, len(wire), step) for m in trunk.feed(wire[at : at + step])]
    assert decoded == messages


@settings(max_examples=30)
@given(st.integers(0, 100_000))
def test_no_frame_that_we_send_is_larger_than_the_runtimes_buffer(size: int) -> None:
    wire = ttrpc.frames(1, ttrpc.Message(1, ttrpc.RESPONSE, b"x" * size))
    lengths = []
    while wire:
        _, length = struct.unpack_from(">II", wire)
        lengths.append(length)
        wire = wire[8 + length :]
    # 10 bytes of the message's head travel with the body.
    assert max(lengths) <= 4096
    assert sum(lengths) == size + 10


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_noise_is_refused_or_waited_on_and_never_an_unknown_error(noise: bytes) -> None:
    try:
        decoded = ttrpc.Trunk().feed(noise)
    except ttrpc.BrokenStream:
        return
    assert all(len(m.body) <= len(noise) for _, m in decoded)


def test_a_frame_that_announces_gigabytes_is_refused_at_once() -> None:
    with pytest.raises(ttrpc.BrokenStream, match="4294967295 bytes"):
        ttrpc.Trunk().feed(struct.pack(">II", 1, 2**32 - 1))


def test_a_message_larger_than_the_protocols_limit_is_refused() -> None:
    head = struct.pack(">IIBB", (4 << 20) + 1, 1, 1, 0)
    with pytest.raises(ttrpc.BrokenStream, match="4194305 bytes"):
        ttrpc.Trunk().feed(struct.pack(">II", 1, len(head)) + head)


def test_a_status_is_in_the_answer_only_when_something_is_wrong() -> None:
    fine = body.Response.FromString(ttrpc.response(3, b"x").body)
    wrong = body.Response.FromString(ttrpc.response(3, code=12, text="no such method").body)
    assert not fine.HasField("status")
    assert (wrong.status.code, wrong.status.message) == (12, "no such method")


def test_fields_that_our_table_leaves_out_survive_a_change() -> None:
    """Field 13 of NRI's Container, rlimits, is in no table of ours."""
    unknown = b"\x6a\x05\x0a\x03cpu"
    container = nri.Container.FromString(nri.Container(id="a").SerializeToString() + unknown)
    container.name = "b"
    assert unknown in container.SerializeToString()


def test_a_line_of_a_table_without_a_name_is_named() -> None:
    with pytest.raises(ValueError, match="no ':' in 'Broken a=1'"):
        message_classes("test", "Good: a=1\nBroken a=1\n")
