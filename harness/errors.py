"""What a test raises for an experiment. xfail(raises=...) tells a reproduced hole from a broken run by the class."""

from __future__ import annotations


class ExperimentFailed(AssertionError):
    """An experiment did not end with exactly one charge. The message is the timeline, the story and the replay."""


class DoubleCharge(ExperimentFailed):
    """The customer was charged more than once."""


class NoCharge(ExperimentFailed):
    """The invoice was never charged."""


class Inconclusive(ExperimentFailed):
    """Nothing was shown: the fault did not land, B did not contend, the machine stalled, or the harness failed."""


class HoleClosed(ExperimentFailed):
    """A declared hole did not show: exactly one charge, though the fault landed and B contended."""
