"""Differential testing: the same random verbs on several stores must give the same answers.

Subclass :class:`StoresAgree`, say how to make the stores, and let pytest collect its ``TestCase``. Needs
Hypothesis, which comes with the ``test`` extra.
"""

from tidewheel.testing.agreement.state_machine import StoresAgree

__all__ = ["StoresAgree"]
