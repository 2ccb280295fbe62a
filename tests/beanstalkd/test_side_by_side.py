"""beanstalkd and we on one machine: what a file of conversations cannot say."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from tests.servers import Beanstalkd
from tests.servers.tidewheel_beanstalkd import Door


@pytest.fixture(scope="module")
def theirs() -> Iterator[Beanstalkd]:
    with Beanstalkd() as server:
        yield server


@pytest.fixture(scope="module")
def ours() -> Iterator[Door]:
    with Door() as server:
        yield server


def all_replies(server: Beanstalkd | Door, said: bytes) -> bytes:
    """Everything that comes back until the connection is closed."""
    heard = b""
    with socket.create_connection(server.address, 20) as client:
        client.sendall(said + b"quit\r\n")
        while data := client.recv(65536):
            heard += data
    return heard


def test_both_name_the_same_machine(theirs: Beanstalkd, ours: Door) -> None:
    """Host name, system and architecture, written alike."""
    told = [
        re.findall(rb"^(?:hostname|os|platform): .*$", all_replies(server, b"stats\r\n"), re.MULTILINE)
        for server in (theirs, ours)
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 3


def test_a_line_that_is_too_long_by_one_byte_does_not_take_the_next_with_it(
    theirs: Beanstalkd, ours: Door
) -> None:
    """beanstalkd reads 224 bytes at a time and loses the end of a line that falls between two of them."""
    said = b"stats-tube " + b"x" * 212 + b"\r\nlist-tube-used\r\nlist-tubes-watched\r\n"
    assert all_replies(theirs, said) == b"BAD_FORMAT\r\nOK 14\r\n---\n- default\n\r\n"
    assert all_replies(ours, said) == b"BAD_FORMAT\r\nUSING default\r\nOK 14\r\n---\n- default\n\r\n"


def test_a_carriage_return_inside_a_line_does_not_hide_its_end(theirs: Beanstalkd, ours: Door) -> None:
    """beanstalkd looks at the first carriage return only, and waits until its buffer is full."""
    said = b"use a\rb\r\n" + b"list-tube-used\r\n" * 20
    assert all_replies(theirs, said).count(b"USING default") < 20
    assert all_replies(ours, said) == b"BAD_FORMAT\r\n" + b"USING default\r\n" * 20


def test_a_pause_outlives_the_tube(theirs: Beanstalkd, ours: Door) -> None:
    """beanstalkd forgets it with the tube, when nobody refers to it any more."""
    pause = b"use paused\r\npause-tube paused 600\r\n"
    take = b"use paused\r\nwatch paused\r\nput 0 0 60 1\r\nx\r\nreserve-with-timeout 0\r\n"
    for server, told in ((theirs, b"RESERVED "), (ours, b"TIMED_OUT\r\n")):
        assert b"PAUSED\r\n" in all_replies(server, pause)
        assert told in all_replies(server, take)


def test_ids_go_on_after_a_restart() -> None:
    """They are numbers of the store, not of the process."""
    put = b"put 0 0 60 1\r\nx\r\n"
    with Door() as door:
        first = int(all_replies(door, put).split()[1])
        all_replies(door, b"delete %d\r\n" % first)
        door.stop()
        door.start()
        assert int(all_replies(door, put).split()[1]) > first
