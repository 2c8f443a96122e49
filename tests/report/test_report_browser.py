"""The page in a real browser: opened from disk, by mouse and by keyboard, light and dark, wide and at 390 px.

The reports are those of real runs; made-up is only the merged one, whose two runs must not agree.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import real_runs
import sample_runs
from real_browser import command, look

from harness import report
from harness.report.payload import LOG_LIMIT
from harness.report.words import visible

WAYS = ("light", "dark", "phone")
NAMES = ("swept", "passing", "broken", "hostile", "merged", "partial", "empty")
CELLS_AT_MOST = 8
AT_ONCE = 1 if "PYTEST_XDIST_WORKER" in os.environ else 3
"""Reports made and looked at side by side in this process: most of a run is waiting for leases to run out."""


def _made_and_seen(folder: Path, name: str, *, wait: bool = True) -> tuple[str, dict[str, Any]]:
    """Where the page is, and what the browser saw of it; made once for all processes of this test session."""

    def make() -> tuple[str, dict[str, Any]]:
        page = _merged(folder) if name == "merged" else real_runs.make(folder, name) / "index.html"
        return str(page), look(page, CELLS_AT_MOST)

    made: tuple[str, dict[str, Any]] = real_runs.once(folder, f"seen-{name}", make, wait=wait)
    return made


@pytest.fixture(scope="module", params=NAMES)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One report, and what was seen of it. Whoever asks helps to make those that nobody is at yet."""
    command()  # skips here, before anything is run
    folder = real_runs.shared(tmp_path_factory)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name in NAMES:
            pool.submit(_made_and_seen, folder, name, wait=False)  # what goes wrong is told to the test that wants it
    page, looked = _made_and_seen(folder, request.param)
    if request.param == "merged":
        run = report.merge([sample_runs.passing(), sample_runs.compose()])
    else:
        run = report.load(Path(page).parent / "results.json")
    return {"name": request.param, "run": run, **looked}


def _merged(folder: Path) -> Path:
    """Two stacks that do not agree, compared as before and after too."""
    before, after = sample_runs.passing(), sample_runs.compose()
    return report.write_html(
        report.merge([before, after]), folder / "merged" / "index.html", report.compare(before, after)
    )


def test_the_runs_are_what_they_are_called(seen: dict[str, Any]) -> None:
    """A page of another run than is meant would show nothing of what the other tests are about."""
    run, name = seen["run"], seen["name"]
    verdicts = [e["verdict"] for e in run["experiments"]]
    assert run["partial"] == (name in ("partial", "empty"))
    assert bool(verdicts) == (name != "empty")
    if name in ("broken", "hostile"):
        assert {e["subject"] for e in run["experiments"] if e["verdict"] == "double-charge"} > {"naive-ttl"}
    if name == "swept":
        assert len({e["place"] for e in run["experiments"]}) >= 20
        assert len(verdicts) >= 80
    if name == "hostile":
        logs = "".join(w["log"] for e in run["experiments"] for w in e["workers"])
        assert all(part in logs for part in ("</script><script>", "\x1b[31m", "\u202e", "x" * 30_000))


def test_nothing_is_fetched_and_nothing_goes_wrong(seen: dict[str, Any]) -> None:
    for way in WAYS:
        assert (seen[way]["requests"], seen[way]["console"], seen[way]["errors"]) == ([], [], [])
        assert seen[way]["title"].endswith("lockproof report")


def test_nothing_is_wider_than_the_screen(seen: dict[str, Any]) -> None:
    for way in WAYS:
        assert seen[way]["overview"]["overflow"] <= 0
        assert [d["cell"] for d in seen[way]["details"] if d["overflow"] > 0] == []


def test_the_accessibility_checker_finds_nothing_contrast_included(seen: dict[str, Any]) -> None:
    for way in WAYS:
        assert seen[way]["overview"]["axe"] == []
        assert [finding for d in seen[way]["details"] for finding in d.get("axe", [])] == []


def test_each_cell_opens_its_own_experiment_with_story_drawing_and_replay(seen: dict[str, Any]) -> None:
    if seen["name"] == "empty":
        assert seen["light"]["cells"] == 0
        return
    assert seen["light"]["details"]
    for detail in seen["light"]["details"]:
        e = seen["run"]["experiments"][int(detail["cell"].removeprefix("#e"))]
        assert detail["focus"] == "d-title"
        assert report.sentence(e) in detail["story"]
        assert detail["title"] == f"{e['subject']}: {e['fault']} at {e['place']}"
        assert detail["replay"] == e["replay"]
        if e["events"]:
            charges = sum(event["what"] == "charge-committed" for event in e["events"])
            assert (detail["coins"], detail["again"]) == (charges, max(charges - 1, 0))
            assert detail["shapes"] > 10
            assert detail["text"] == report.timeline(e)
            assert detail["raw"] == [event["what"] for event in e["events"]]


def test_what_a_worker_printed_is_shown_as_text_with_everything_hidden_made_visible(seen: dict[str, Any]) -> None:
    for detail in seen["light"]["details"]:
        e = seen["run"]["experiments"][int(detail["cell"].removeprefix("#e"))]
        assert detail["printed"] == [visible(w["log"], LOG_LIMIT) for w in e["workers"] if w["log"]]
        assert detail["markup"] == 0


def test_every_cell_of_the_matrix_can_be_reached_opened_and_left_by_keyboard(seen: dict[str, Any]) -> None:
    keyboard = seen["keyboard"]
    if seen["name"] == "empty":
        assert keyboard is None
        return
    assert set(keyboard["wanted"]) <= set(keyboard["reached"])
    assert keyboard["landed"] == ["d-title", keyboard["chosen"]]
    assert keyboard["back"] == keyboard["chosen"]
    assert len(keyboard["told"]) == 5


def test_by_mouse_a_cell_opens_a_coin_tells_its_charge_and_the_replay_command_is_copied(seen: dict[str, Any]) -> None:
    mouse = seen["mouse"]
    if seen["name"] == "empty":
        assert mouse is None
        return
    assert mouse["landed"] == mouse["wanted"]
    label, told = mouse["pointed"]
    assert label.startswith("charge 1: by ")
    assert told.endswith(label)
    shown, copied, said = mouse["copied"]
    assert copied == shown != ""
    assert said == "copied"
