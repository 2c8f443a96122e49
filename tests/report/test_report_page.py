"""The page as a file: whole, safe, small. What it does in a browser is in test_report_browser.py."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import pytest
import sample_histories as h
import sample_runs
from sample_runs import experiment, run

from harness import report
from harness.report.drawing import drawing
from harness.report.html import PAGE_LIMIT, render


def _records(page: str) -> list[dict[str, Any]]:
    """The experiments that the page carries, in the order of the run."""
    pieces = re.findall(r'<script type="text/plain" class="piece">([^<]*)</script>', page)
    opened = [json.loads(zlib.decompress(base64.b64decode(piece), -zlib.MAX_WBITS)) for piece in pieces]
    found = re.search(r'<script type="application/json" id="index">([^<]*)</script>', page)
    assert found is not None
    return [opened[piece][position] for piece, position in json.loads(found.group(1))["where"]]


class _Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize("name", list(sample_runs.all_runs()))
def test_a_page_carries_every_experiment_with_its_story_events_and_replay(name: str) -> None:
    made = sample_runs.all_runs()[name]
    records = _records(render(made))
    assert len(records) == len(made["experiments"])
    for record, e in zip(records, made["experiments"], strict=True):
        assert record["verdict"] == e["verdict"]
        assert len(record["events"]) == len(e["events"])
        if name != "hostile":
            assert (record["id"], record["replay"], record["events"]) == (e["id"], e["replay"], e["events"])
            assert record["text"] == report.timeline(e)
            assert record["paragraph"] == report.paragraph(e)


@pytest.mark.parametrize("name", list(sample_runs.all_runs()))
def test_a_page_refers_to_nothing_outside_itself_and_forbids_all_network(name: str) -> None:
    page = render(sample_runs.all_runs()[name])
    for tag, attributes in _Page(page).tags:
        for key in ("src", "href", "action", "data", "poster", "srcset"):
            value = attributes.get(key)
            assert value is None or value.startswith(("#", "data:,")), (tag, key, value)
        assert not [key for key in attributes if key.startswith("on") or key == "style"]
    policy = next(a["content"] for t, a in _Page(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_hostile_strings_add_no_markup_and_keep_no_hidden_character() -> None:
    made = sample_runs.hostile()
    page = render(made)
    tame = render(
        run([experiment("x", place=str(n), verdict=e["verdict"], events=[]) for n, e in enumerate(made["experiments"])])
    )
    allowed = {tag for tag, _ in _Page(tame).tags} | {"ol", "li", "h2", "div"}
    assert {tag for tag, _ in _Page(page).tags} <= allowed
    assert sum(tag == "script" for tag, _ in _Page(page).tags) == sum(tag == "script" for tag, _ in _Page(tame).tags)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert not re.search(r"\\u202[a-e]|\\u0000|\\ud800", json.dumps(_records(page)).replace("\\\\", ""))
    page.encode("utf-8")


def test_a_thousand_experiments_with_full_histories_stay_under_three_megabytes() -> None:
    made = sample_runs.thousand()
    page = render(made)
    events = [len(json.dumps(e["events"])) for e in made["experiments"]]
    assert sum(events) / len(events) > 11_200, "on average a real run's experiments have this many characters of events"
    assert len(page.encode()) < PAGE_LIMIT == 3_000_000
    records = _records(page)
    assert len(records) == 1000
    assert all(record["events"] for record in records if record["status"] == "bad")


def test_what_does_not_fit_loses_its_events_last_the_failures_never_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = sample_runs.thousand(400)
    monkeypatch.setattr("harness.report.html.PAGE_LIMIT", 460_000)
    page = render(made)
    assert len(page.encode()) < 460_000
    records = _records(page)
    full = [record for record in records if "events" in record]
    assert 0 < len(full) < 400
    assert {record["status"] for record in records if "events" not in record} == {"one"}
    assert all(record["sentence"] and record["replay"] for record in records)
    assert f"{400 - len(full)} experiments of 400, those that held first, are shown without their events" in page


def test_the_first_screen_has_the_verdict_the_matrix_in_words_and_what_was_run_on_what() -> None:
    page = render(sample_runs.passing())
    first = page[: page.index('aria-label="What the words mean"')]
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", first))
    for said in (
        "Green: all 54 experiments came out as declared.",
        "double 3 of 6 , double charge (reproduced): fencing, slow-charge",
        "one all 6 , one: watchdog, slow-charge",
        "local stack · Valkey 9.1.2 · Toxiproxy stand-in 2.12.0 · PostgreSQL 18.6 · lease 1000 ms · seed 20411 · Linux "
        "6.1 x86_64, Python 3.11.7, 2 CPUs · commit 8007652c0ffe · 2026-11-29 15:40, 14.2 s",
    ):  # fmt: skip
        assert said in text, said


def test_a_partial_run_and_runs_that_disagree_say_so_at_the_top() -> None:
    assert "This run was interrupted" in render(sample_runs.partial())
    page = render(report.merge([sample_runs.passing(), sample_runs.compose()]))
    assert "local says exactly-one; compose says double-charge" in page


def test_the_drawing_ends_each_lease_where_the_server_said_and_marks_the_second_coin() -> None:
    shapes = drawing(experiment("x", events=h.slow_double()))
    leases = [bar for bar in shapes["bars"] if bar["kind"] == "lease"]
    assert [(bar["who"], bar["from"], bar["to"], bar["how"]) for bar in leases][:2] == [
        ("A", 2.3, 1003.4, "expired"), ("B", 1048.3, 2051, "expired"),
    ]  # fmt: skip
    assert [(coin["n"], coin["who"]) for coin in shapes["coins"]] == [(1, "A"), (2, "B")]
    assert [mark["at"] for mark in shapes["marks"] if mark["kind"] == "expired"] == [1003.4, 2051]
    assert shapes["lanes"] == ["A", "B", "C", "lock", "processor", "fault"]


def test_an_arrow_leaves_when_the_worker_sent_and_ends_when_the_processor_had_it() -> None:
    arrows = drawing(experiment("x", events=h.frozen(tokens=True)))["arrows"]
    mine = [a for a in arrows if "processor" in (a["from"], a["to"]) and "A" in (a["from"], a["to"])]
    assert [(a["from"], a["to"], a["kind"], a["t0"], a["t1"], a.get("token")) for a in mine] == [
        ("A", "processor", "held", 4.98, 1067.4, "7"),
        ("processor", "A", "reply", 1067.9, 1070.6, None),
    ]
    dropped = [a for a in drawing(experiment("x", events=h.crashed()))["arrows"] if a["kind"] == "lost"]
    assert [(a["from"], a["to"], a["t0"]) for a in dropped] == [("A", "processor", 4.98)]


def test_frozen_and_in_flight_are_bars_and_an_experiment_that_never_began_has_no_drawing() -> None:
    bars = drawing(experiment("x", events=h.frozen(tokens=True)))["bars"]
    assert [(bar["from"], bar["to"]) for bar in bars if bar["kind"] == "frozen"] == [(5.9, 1066.0)]
    assert [(bar["who"], bar["from"]) for bar in bars if bar["kind"] == "flight"] == [("B", 1052.9), ("A", 1067.4)]
    events = [{"t_ms": 0.0, "witness": "queue", "who": "fault", "what": "inapplicable", "reason": "no Redis"}]
    assert drawing(experiment("x", verdict="not-applicable", events=events)) == {}
