"""From bytes to commands, in any portions: what beanstalkd accepts, and which mistake it tells of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.beanstalkd.commands import MAX_LINE_BYTES, Command, CommandParser, NotBeanstalkd
from tidewheel.beanstalkd.replies import BAD_FORMAT, EXPECTED_CRLF, JOB_TOO_BIG, UNKNOWN_COMMAND


def begun(max_job_size: int = 100) -> CommandParser:
    """A parser behind the first command, which has rules of its own."""
    parser = CommandParser(max_job_size)
    parser.feed(b"stats\r\n")
    assert parser.next() == Command("stats")
    return parser


def parsed(data: bytes, *, max_job_size: int = 100, portion: int = 1_000_000) -> list[Command]:
    """All commands of some bytes that come in portions, from a client that has said something before."""
    parser = begun(max_job_size)
    commands: list[Command] = []
    for start in range(0, len(data), portion):
        parser.feed(data[start : start + portion])
        while (command := parser.next()) is not None:
            commands.append(command)
    return commands


def only(line: bytes) -> Command:
    (command,) = parsed(line + b"\r\n")
    return command


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"reserve", Command("reserve")),
        (b"reserve-with-timeout 30", Command("reserve-with-timeout", timeout=30)),
        (b"reserve-job 7", Command("reserve-job", number=7)),
        (b"delete 18446744073709551615", Command("delete", number=2**64 - 1)),
        (b"release 7 4294967295 10", Command("release", number=7, priority=2**32 - 1, delay=10)),
        (b"bury   7   0", Command("bury", number=7)),
        (b"touch 0007", Command("touch", number=7)),
        (b"use a+b/c;d.e$f_g(h)-i", Command("use", tube="a+b/c;d.e$f_g(h)-i")),
        (b"watch " + b"x" * 200, Command("watch", tube="x" * 200)),
        (b"ignore 1", Command("ignore", tube="1")),
        (b"peek 7", Command("peek", number=7)),
        (b"peek-ready", Command("peek-ready")),
        (b"kick 10", Command("kick", bound=10)),
        (b"kick-job 7", Command("kick-job", number=7)),
        (b"stats", Command("stats")),
        (b"stats-job 7", Command("stats-job", number=7)),
        (b"stats-tube default", Command("stats-tube", tube="default")),
        (b"list-tubes", Command("list-tubes")),
        (b"list-tubes-watched", Command("list-tubes-watched")),
        (b"list-tube-used", Command("list-tube-used")),
        (b"pause-tube default 60", Command("pause-tube", tube="default", delay=60)),
        (b"quit", Command("quit")),
    ],
    ids=lambda value: value.decode()[:30] if isinstance(value, bytes) else "",
)
def test_a_well_formed_command_is_read(line: bytes, command: Command) -> None:
    """Every command of the protocol, with its arguments."""
    assert only(line) == command


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"", UNKNOWN_COMMAND),
        (b"put", UNKNOWN_COMMAND),  # its word ends with a space
        (b"PUT 0 0 0 0", UNKNOWN_COMMAND),
        (b" stats", UNKNOWN_COMMAND),
        (b"delete", UNKNOWN_COMMAND),
        (b"list-tube", UNKNOWN_COMMAND),
        (b"put 0 0 60", BAD_FORMAT),
        (b"put -1 0 60 1", BAD_FORMAT),
        (b"put 4294967296 0 60 1", BAD_FORMAT),
        (b"put 1x 0 60 1", BAD_FORMAT),
        (b"put 0 0 60 1 ", BAD_FORMAT),
        (b"delete ", BAD_FORMAT),
        (b"delete 1 ", BAD_FORMAT),
        (b"delete 1a", BAD_FORMAT),
        (b"delete 18446744073709551616", BAD_FORMAT),
        (b"release 1 2", BAD_FORMAT),
        (b"bury 1", BAD_FORMAT),
        (b"use ", BAD_FORMAT),
        (b"use -a", BAD_FORMAT),
        (b"use a b", BAD_FORMAT),
        (b"use a*b", BAD_FORMAT),
        (b"use " + b"x" * 201, BAD_FORMAT),
        (b"kick x", BAD_FORMAT),
        (b"kick 18446744073709551616", BAD_FORMAT),
        (b"stats ", BAD_FORMAT),
        (b"stats-job", BAD_FORMAT),  # begins like stats
        (b"reserved", BAD_FORMAT),
        (b"reserve-with-timeout", BAD_FORMAT),
        (b"reserve-with-timeout 9223372036854775808", BAD_FORMAT),
        (b"list-tubes2", BAD_FORMAT),
        (b"pause-tube", BAD_FORMAT),
        (b"pause-tube default", BAD_FORMAT),
        (b"pause-tube a5", BAD_FORMAT),
        (b"pause-tube default 1 ", BAD_FORMAT),
        (b"pause-tube -a 1", BAD_FORMAT),
        (b"stats\0", BAD_FORMAT),
        (b"nothing\0", BAD_FORMAT),
    ],
)
def test_what_is_not_well_formed_is_told_as_beanstalkd_does(line: bytes, error: bytes) -> None:
    """A word that begins like a command is that command badly formed; another is unknown."""
    assert only(line).error == error


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"kick -1", Command("kick", bound=2**32 - 1)),
        (b"kick 4294967297", Command("kick", bound=1)),
        (b"kick 5 or so", Command("kick", bound=5)),
        (b"reserve-with-timeout soon", Command("reserve-with-timeout", timeout=0)),
        (b"reserve-with-timeout -1", Command("reserve-with-timeout", timeout=None)),
        (b"reserve-with-timeout 4294967295", Command("reserve-with-timeout", timeout=None)),
        (b"pause-tubedefault 1", Command("pause-tube", tube="default", delay=1)),
        (b"quitting", Command("quit")),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_what_beanstalkd_lets_pass_passes(line: bytes, command: Command) -> None:
    """C's way of reading some of the numbers; clients that rely on it go on working."""
    assert only(line) == command


def test_a_put_comes_with_its_body() -> None:
    """Of exactly the size it was said to have, whatever is in it."""
    (put, reserve) = parsed(b"put 1 2 0 4\r\n\r\n\0x\r\nreserve\r\n")
    assert put == Command("put", priority=1, delay=2, ttr=1, size=4, body=b"\r\n\0x")
    assert reserve.name == "reserve"


def test_a_body_without_its_end_is_refused_and_what_follows_is_read_on() -> None:
    """Two bytes are taken for the end, whatever they are."""
    (put, rest) = parsed(b"put 0 0 1 2\r\nabcdstats\r\n")
    assert (put.name, put.error) == ("put", EXPECTED_CRLF)
    assert rest == Command("stats")


def test_a_body_that_is_too_big_is_swallowed_before_that_is_said() -> None:
    """The client goes on sending it, and must not have it taken for commands."""
    parser = CommandParser(max_job_size=10)
    parser.feed(b"put 0 0 1 4000000000\r\n" + b"delete 1\r\n" * 1000)
    assert parser.next() is None
    assert parser.buffered == 0  # nothing of it is kept
    (put, rest) = parsed(b"put 0 0 1 11 garbage\r\nhello world\r\nstats\r\n", max_job_size=10)
    assert (put.name, put.error) == ("put", JOB_TOO_BIG)
    assert rest == Command("stats")


@pytest.mark.parametrize("portion", [1, 7, 224, 1_000_000])
def test_a_line_that_is_too_long_is_skipped_to_its_end(portion: int) -> None:
    """One complaint, and the next command is read as if nothing had been."""
    longest = b"use " + b" " * (MAX_LINE_BYTES - 6)
    for extra in range(3):
        commands = parsed(longest + b"x" * extra + b"\r\nstats\r\n", portion=portion)
        assert [command.error or command.name for command in commands] == [BAD_FORMAT, "stats"]
    huge = parsed(b"x" * 100_000 + b"\r\nstats\r\n", portion=portion)
    assert [command.error or command.name for command in huge] == [BAD_FORMAT, "stats"]


def test_a_line_that_never_ends_is_not_kept() -> None:
    """A client can make the parser hold no more than a line."""
    parser = begun(max_job_size=10)
    for _ in range(100):
        parser.feed(b"x" * 10_000)
        assert parser.next() is None
        assert parser.buffered <= 1


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /put HTTP/1.0\r\n",
        b"POST /" + b"a" * 500,
        b"OPTIONS * HTTP/1.1\r\n",
        b"PROPFIND / HTTP/1.1\r\n",
        b"PUTS / HTTP/1.1\r\n",
        b"put\0 / HTTP/1.1\r\n",
        b"x" * 300,
        b"PRI * HTTP/2.0\r\n",
        b"\r\n",
        b" stats\r\n",
        b"\x16\x03\x01\x02\0\x01\r\n",
        b"EHLO example.org\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"nonsense\r\n",
        b"GET something\r\n",
    ],
)
def test_other_protocols_are_not_listened_to(request_line: bytes) -> None:
    """A page in a browser can send anything to this port; its body must never be read as commands."""
    parser = CommandParser(max_job_size=10)
    parser.feed(request_line + b"put 0 0 60 1\r\nx\r\n")
    with pytest.raises(NotBeanstalkd):
        parser.next()


def test_what_is_told_of_http_is_a_line_without_control_characters() -> None:
    """It is logged: nobody outside writes lines of the log, or to the terminal it is read on."""
    parser = CommandParser(max_job_size=10)
    parser.feed(b"GET /\x1b[2J\n00:00:00 error all is lost HTTP/1.1\r\n")
    with pytest.raises(NotBeanstalkd) as caught:
        parser.next()
    assert str(caught.value).isprintable()


def test_only_a_first_line_can_be_of_another_protocol() -> None:
    """An unknown command later on is just that."""
    assert only(b"GET / HTTP/1.1").error == UNKNOWN_COMMAND


@pytest.mark.parametrize(
    "line", [b"put", b"put x", b"release", b"peek-readyx", b"pause-tube", b"use " + b"x" * 300, b"quit now"]
)
def test_any_command_may_come_first_also_a_wrong_one(line: bytes) -> None:
    """Clients may begin with what they like; a mistake is answered, as beanstalkd does."""
    parser = CommandParser(max_job_size=10)
    parser.feed(line + b"\r\nstats\r\n")
    first, second = parser.next(), parser.next()
    assert first is not None
    assert first.error or first.name == "quit"
    assert second == Command("stats")


_pieces = st.sampled_from(
    [
        b"put 0 0 1 3\r\nabc\r\n",
        b"put 0 0 1 101\r\n" + b"z" * 101 + b"\r\n",
        b"put 0 0 1 3\r\nabcde",
        b"put 0 0 1 3 x\r\n",
        b"reserve\r\n",
        b"delete 1\r\n",
        b"nonsense\r\n",
        b"x" * 300 + b"\r\n",
        b"x" * 222 + b"\r\n",
        b"x" * 223 + b"\r\n",
        b"\r\r\n",
        b"\r\n",
        b"\0\r\n",
    ]
)


@given(pieces=st.lists(_pieces, max_size=8), portions=st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_portions_do_not_matter(pieces: list[bytes], portions: list[int]) -> None:
    """However a network cuts the bytes up, the commands are the same."""
    data = b"".join(pieces)
    parser = begun()
    commands: list[Command] = []
    start = 0
    while start < len(data):
        portion = portions[start % len(portions)]
        parser.feed(data[start : start + portion])
        start += portion
        while (command := parser.next()) is not None:
            commands.append(command)
    assert commands == parsed(data)
