from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from tidewheel.core.open_files import RESERVED_FILES, raise_file_limit
soft, hard = {limits}
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(raise_file_limit(300), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
@pytest.mark.parametrize(
    ("limits", "says"),
    [((256, 1000), "300 500"), ((800, 1000), "300 800"), ((256, 400), "200 400")],
    ids=["raised", "enough already", "as far as it goes"],
)
def test_room_is_made_for_connections(limits: tuple[int, int], says: str) -> None:
    """The low limit programs start with is raised to what is needed, and never lowered."""
    program = PROGRAM.format(limits=limits)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == says
