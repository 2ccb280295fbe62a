"""One limit for every wait of a test."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 60
"""Seconds until a condition that does not come true fails its test.

Far more than a wait takes, also where other programs use all cores: a test says what happens, not how fast.
"""
