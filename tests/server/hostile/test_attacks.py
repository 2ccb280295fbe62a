"""Every attack at a small size. ``python -m tests.server.hostile`` prints a table of all at full size."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.hostile.scenes import QUICK_SETTINGS, SCENES, Scene, broken_limits, run
from tests.server.hostile.target import Target, target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One server for all attacks that need no special one."""
    with target(tmp_path_factory.mktemp("attacked"), settings=QUICK_SETTINGS) as made:
        yield made


@pytest.mark.parametrize(
    "scene", [scene for scene in SCENES if not scene.files], ids=lambda scene: scene.attack
)
def test_an_attack_costs_little_and_harms_no_other_client(attacked: Target, scene: Scene) -> None:
    """Memory grows by less than 50 MB, /healthz is answered within half a second, the attacker is cut, and
    the log gets at most a line per second.
    """
    assert not broken_limits(scene, *run(scene, attacked))


@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene.files], ids=lambda scene: scene.attack)
def test_a_server_without_free_files_stays_reachable_and_quiet(tmp_path: Path, scene: Scene) -> None:
    """Connections that only wait give way to new ones, and the log is not flooded."""
    with target(tmp_path, files=scene.files, settings=QUICK_SETTINGS) as attacked:
        assert not broken_limits(scene, *run(scene, attacked))
