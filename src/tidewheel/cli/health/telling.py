"""Who is told how the workers of this command are: whoever asks at a port, or the parent of this process."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidewheel.cli import failures
from tidewheel.cli.health.listening import listen, place_of
from tidewheel.cli.health.port import HealthPort
from tidewheel.cli.health.reporting import Reporter, Reports, take_where
from tidewheel.settings import load_settings
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.worker.health import WorkerHealth

_log = logging.getLogger("tidewheel.cli")


def address(given: str | None) -> str:
    """Where to listen, as far as it is known without the app; empty for nowhere."""
    return load_settings({}).health_listen if given is None else given


class Telling:
    """About one worker, from the first moment of its process to the last."""

    def __init__(
        self,
        judge: Callable[[], WorkerHealth],
        telemetry: Callable[[], Telemetry | None],
        member: int | None,
    ) -> None:
        self._judge = judge
        self._telemetry = telemetry
        self._member = member
        self._to: HealthPort | Reporter | None = None
        self._place = ""
        where = take_where()
        if where and member is not None:
            self._to = Reporter(member, judge, telemetry, where)
            self._to.start()

    def begin(self, where: str) -> None:
        """Listen there, unless somebody is told already."""
        if not where or self._to is not None:
            return
        if self._member is not None:
            if self._member == 1:  # the others would say the same
                failures.warn(
                    f"health_listen is {where!r}, which only the app knows: several processes have one port "
                    "for all; give --health-listen or TIDEWHEEL_HEALTH_LISTEN"
                )
            return
        listener = listen(where)
        self._place = place_of(listener)
        self._to = HealthPort(listener, self._judge, self._metrics)
        self._to.start()

    def _metrics(self) -> str:
        telemetry = self._telemetry()
        return "" if telemetry is None else telemetry.prometheus()

    @property
    def told(self) -> bool:
        """Whether anybody can ask."""
        return self._to is not None

    def announce(self) -> None:
        """Say where it listens."""
        if self._place:
            _announce(self._place)

    def end(self) -> None:
        if self._to is not None:
            self._to.stop()


class TellingOfAll:
    """About all processes of a parent, which hears from each of them."""

    def __init__(self, where: str, number: int, called: Callable[[int], str]) -> None:
        listener = listen(where)
        try:
            self.reports = Reports(number, called)
        except BaseException:
            listener.close()
            raise
        _announce(place_of(listener))
        reports = self.reports
        self._port = HealthPort(listener, reports.sum_up, reports.metrics, (reports.socket, reports.read))
        self._port.start()

    def end(self) -> None:
        self._port.stop()


def _announce(place: str) -> None:
    _log.info("health is told at http://%s/healthz and /readyz", place)
