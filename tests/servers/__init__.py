"""Real servers for tests, benchmarks and developers: PostgreSQL, PgBouncer in front of it, and beanstalkd.

``python -m tests.servers postgres`` runs one in the foreground and prints its URL.
"""

from tests.servers.beanstalkd import Beanstalkd
from tests.servers.binaries import PostgresBinaries, find_binaries, find_version
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import DURABLE, FAST, PostgresServer
from tests.servers.processes import ServerError

__all__ = [
    "DURABLE",
    "FAST",
    "Beanstalkd",
    "PgBouncer",
    "PostgresBinaries",
    "PostgresServer",
    "ServerError",
    "find_binaries",
    "find_version",
]
