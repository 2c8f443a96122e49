"""The page in a real browser: opened from disk, by mouse and by keyboard, light and dark, wide and at 390 px."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_runs

from harness import report

Look = Callable[[Path, int], dict[str, Any]]
WAYS = ("light", "dark", "phone")


@pytest.fixture(scope="module", params=["passing", "broken", "swept", "empty", "partial", "hostile", "merged"])
def seen(request: pytest.FixtureRequest, look: Look, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    runs = sample_runs.all_runs() | {"merged": report.merge([sample_runs.passing(), sample_runs.compose()])}
    page = report.write_html(runs[request.param], tmp_path_factory.mktemp(request.param) / "index.html")
    cells = len(runs[request.param]["experiments"]) if request.param in ("broken", "partial", "hostile") else 6
    return {"name": request.param, "run": runs[request.param], **look(page, max(cells, 1))}


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
        if seen["name"] != "hostile":
            assert detail["title"] == f"{e['subject']}: {e['fault']} at {e['place']}"
            assert detail["replay"] == e["replay"]
        if e["events"]:
            charges = sum(event["what"] == "charge-committed" for event in e["events"])
            assert (detail["coins"], detail["again"]) == (charges, max(charges - 1, 0))
            assert detail["shapes"] > 10
            assert detail["text"] == report.timeline(e)


def test_every_cell_of_the_matrix_can_be_reached_opened_and_left_by_keyboard(seen: dict[str, Any]) -> None:
    keyboard = seen["keyboard"]
    if seen["name"] == "empty":
        assert keyboard is None
        return
    assert set(keyboard["wanted"]) <= set(keyboard["reached"])
    assert keyboard["landed"] == ["d-title", keyboard["chosen"]]
    assert keyboard["back"] == keyboard["chosen"]
    if seen["name"] != "partial":
        assert len(keyboard["told"]) == 5
