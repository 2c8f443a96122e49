"""What a failing test prints, and as what it fails."""

from __future__ import annotations

import pytest
from sample_runs import experiment

from harness.errors import DoubleCharge, ExperimentFailed, HoleClosed, Inconclusive
from harness.scenario import Result
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE, INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdict", "expected", "raised"),
    [
        (EXACTLY_ONE, DOUBLE_CHARGE, HoleClosed),
        (DOUBLE_CHARGE, EXACTLY_ONE, DoubleCharge),
        (INCONCLUSIVE, DOUBLE_CHARGE, Inconclusive),
    ],
)
def test_what_fails_explains_itself_with_its_timeline(
    verdict: str, expected: str, raised: type[ExperimentFailed]
) -> None:
    record = experiment("fencing", verdict=verdict, expected=expected)
    with pytest.raises(raised) as failure:
        Result(record).charged_exactly_once()
    assert "is given the job" in str(failure.value)
    assert "Replay: " in str(failure.value)
