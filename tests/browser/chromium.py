"""A Chromium to test with: the system's, or one that is installed by the run itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.servers.packages import cache_directory

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/usr/lib/chromium/chromium",
    "/snap/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
)
PACKED = "@sparticuz/chromium@147.0.0"
"""A Chromium that npm can bring to whoever may install nothing."""
HOW = (
    "apt-get install chromium (macOS: brew install --cask chromium), or install Node, "
    f"with which the tests fetch {PACKED}"
)
INSTALL_SECONDS = 600

_BY_PLAYWRIGHT = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
    *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "TcpPortRandomizationWin"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch"),
)
"""What Playwright switches off; said again, because only the last such argument counts."""
_OF_ITS_WINDOW = (
    *("InitialWebUI", "WebUIReloadButton", "WebUIBackForwardButton", "WebUIHomeButton", "WebUIToolbar"),
    *("WebUILocationBar", "WebUISplitTabsButton", "WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),
    *("PreloadTopChromeWebUI", "SpareRendererForSitePerProcess"),
)
"""Pages that draw buttons and menus of a window nobody sees: for every profile a test opens, three processes
more, and two thirds of the time that opening it takes."""
ARGUMENTS = [f"--disable-features={','.join((*_BY_PLAYWRIGHT, *_OF_ITS_WINDOW))}"]
"""What a Chromium for tests is started with."""


class NoChromium(Exception):
    """There is none, and none could be installed. Tests of the UI fail then: they are not for leaving out."""


def find_chromium() -> Path | None:
    """One that is there."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    return next((place for place in (*map(Path, PLACES), _unpacked()) if place.is_file()), None)


def chromium() -> Path:
    """One that is there, or is now."""
    if (found := find_chromium()) is not None:
        return found
    failures = []
    with _alone():
        for install in (_by_apt, _by_npm):
            if (found := find_chromium()) is not None:  # another process of this run was first
                return found
            try:
                install()
            except (NoChromium, OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or str(error)
                failures.append(f"{install.__name__.removeprefix('_by_')}: {said.strip()[-500:]}")
    if (found := find_chromium()) is not None:
        return found
    raise NoChromium(f"there is no Chromium for the tests of the UI: {HOW}. Tried: {'; '.join(failures)}")


def _by_apt() -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise NoChromium("only root can install packages, where there is apt-get")
    install = ("apt-get", "install", "-y", "--no-install-recommends", "chromium")
    try:
        _run(*install)
    except subprocess.CalledProcessError:  # the lists of packages are old, or not there
        _run("apt-get", "update")
        _run(*install)


def _by_npm() -> None:
    if sys.platform != "linux" or shutil.which("npm") is None or shutil.which("node") is None:
        raise NoChromium("there is no Node, or no Linux")
    place = _unpacked().parent
    place.mkdir(parents=True, exist_ok=True)
    _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), PACKED)
    unpack = "import it from '@sparticuz/chromium'; await it.executablePath()"
    _run("node", "--input-type=module", "--eval", unpack, at=place)


def _unpacked() -> Path:
    """Where npm's is unpacked: below what its program takes for the directory of temporary files."""
    return cache_directory() / "chromium" / "chromium"


def _run(*command: str, at: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if at is not None:
        environment["TMPDIR"] = str(at)
    subprocess.run(
        command,
        cwd=at,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=INSTALL_SECONDS,
    )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Two processes of one run must not install at once. Nothing is installed where there is no such lock."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    place = cache_directory()
    place.mkdir(parents=True, exist_ok=True)
    with (place / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
