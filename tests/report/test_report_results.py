"""results.json: what is read, what is refused and with which words, and that it is never half written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
import sample_runs

from harness import report
from harness.report.results import loads, write_atomically


@pytest.mark.parametrize("name", list(sample_runs.all_runs()))
def test_a_run_comes_back_from_its_file_as_it_was(name: str, tmp_path: Path) -> None:
    run = sample_runs.all_runs()[name]
    assert report.load(report.write_results(run, tmp_path / "results.json")) == json.loads(json.dumps(run))


def test_unknown_keys_are_kept(tmp_path: Path) -> None:
    run = cast(Any, {**sample_runs.empty(), "added-later": {"x": 1}})
    assert cast(Any, report.load(report.write_results(run, tmp_path / "r.json")))["added-later"] == {"x": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("{", "ends in the middle"),
        ("not json at all", "is not JSON"),
        ("[]", "holds a list where a run"),
        ("{}", "no key 'schema'"),
        ('{"schema": 1}', "schema 1, this version reads 2: run again"),
        ('{"schema": 3}', "schema 3, this version reads 2: use the lockproof that wrote it"),
        ('{"schema": NaN}', "NaN"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_results_file_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(report.ResultsError, match=says):
        loads(text)


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_short_is_named_as_that(keep: float, tmp_path: Path) -> None:
    whole = report.write_results(sample_runs.partial(), tmp_path / "results.json").read_text()
    with pytest.raises(report.ResultsError, match=r"cut\.json: .*(ends in the middle|is not JSON)"):
        report.load(_written(tmp_path / "cut.json", whole[: int(len(whole) * keep)]))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"wall_s": "3"}, r"results\.json\.wall_s is text"),
        ({"partial": 1}, r"\.partial is a number"),
        ({"seed": True}, r"\.seed is true/false"),
        ({"experiments": [7]}, r"experiments\[0\] is a number where an object belongs"),
        ({"subjects": [{"name": "x"}]}, r"subjects\[0\] has no key 'kind'"),
    ],
)
def test_the_first_wrong_key_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(report.ResultsError, match=says):
        loads(json.dumps({**sample_runs.empty(), **change}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"verdict": "fine"}, r"verdict is 'fine'; the verdicts are exactly-one"),
        ({"events": [{"t_ms": "1"}]}, r"events\[0\]\.t_ms is text"),
        ({"events": [{"t_ms": 1.0, "witness": "tap", "who": "A"}]}, r"events\[0\] has no key 'what'"),
        ({"workers": [{"name": "A", "exit": 0}]}, r"workers\[0\] has no key 'log'"),
    ],
)
def test_the_first_wrong_key_of_an_experiment_is_named(change: dict[str, Any], says: str) -> None:
    wrong = {**sample_runs.experiment("naive-ttl"), **change}
    with pytest.raises(report.ResultsError, match=says):
        loads(json.dumps({**sample_runs.empty(), "experiments": [wrong]}))


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(report.ResultsError, match=r"gone\.json: cannot be read: No such file"):
        report.load(tmp_path / "gone.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(report.ResultsError, match="is not UTF-8 text"):
        report.load(tmp_path / "binary.json")


def test_a_number_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = sample_runs.empty()
    run["wall_s"] = float("nan")
    with pytest.raises(ValueError, match="JSON compliant"):
        report.write_results(run, tmp_path / "results.json")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_what_was_there_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = _written(tmp_path / "results.json", "before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"could not be written \(No space left on device\).*results\.json"):
        write_atomically(target, "after")
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_a_reader_of_the_old_file_is_not_disturbed_by_the_new_one(tmp_path: Path) -> None:
    target = _written(tmp_path / "results.json", "before")
    with target.open() as reader:
        write_atomically(target, "after")
        assert reader.read() == "before"
    assert target.read_text() == "after"
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_a_report_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    _written(tmp_path / "reports", "")
    with pytest.raises(OSError, match="could not be written"):
        report.write(sample_runs.empty(), tmp_path / "reports")


def test_a_report_can_be_read_by_others_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_atomically(tmp_path / "deep" / "index.html", "x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
