"""An experiment as properties of a test, for JUnit XML by way of pytest's record_property."""

from __future__ import annotations

import re

from harness.report.results import Experiment
from harness.report.story import told
from harness.report.words import visible

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 (section 2.2, Char) cannot hold, escaped or not."""


def properties(experiment: Experiment) -> list[tuple[str, str]]:
    """(name, value) pairs, all strings that XML 1.0 can hold: verdict, charges, replay and what explains them."""
    recovery = experiment["recovery_s"]
    pairs = [
        ("experiment", experiment["id"]),
        ("subject", experiment["subject"]),
        ("fault", experiment["fault"]),
        ("place", experiment["place"]),
        ("verdict", experiment["verdict"]),
        ("expected", experiment["expected"]),
        ("charges", str(experiment["charges"])),
        ("landed", _bool(experiment["landed"])),
        ("contended", _bool(experiment["contended"])),
        ("attempts", str(len(experiment["attempts"]))),
        ("replay", experiment["replay"]),
        ("sentence", told(experiment)),
    ]
    if experiment["reason"]:
        pairs.append(("reason", experiment["reason"]))
    if experiment["hole"] is not None:
        pairs.append(("hole", experiment["hole"]))
    if recovery is not None:
        pairs.append(("recovery_s", f"{recovery:.3f}"))
    return [(name, xml_text(value)) for name, value in pairs]


def xml_text(value: str, limit: int = 4000) -> str:
    """Text that XML can hold and a viewer shows as it is."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", visible(value, limit))


def _bool(value: bool) -> str:
    return "true" if value else "false"
