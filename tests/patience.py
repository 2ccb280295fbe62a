"""One limit for every wait of a test."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 180
"""Seconds until a condition that does not come true fails its test.

Far more than a wait takes, also where twenty other programs share each core: three worker processes then need
more than a minute to start. A test says what happens, not how fast.
"""
