"""JUnit properties, GitHub's summary and annotations, and the command that draws a report again."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import sample_runs
from sample_runs import experiment, run, subject

from harness import report
from harness.report.__main__ import main


def test_properties_carry_verdict_charges_and_replay() -> None:
    e = experiment("fencing", verdict="double-charge", events=[], recovery_s=1.25)
    pairs = dict(report.properties(e))
    assert pairs["verdict"] == "double-charge"
    assert pairs["charges"] == "2"
    assert pairs["replay"] == e["replay"]
    assert (pairs["landed"], pairs["contended"], pairs["recovery_s"]) == ("true", "true", "1.250")


def test_every_property_can_stand_in_xml_whatever_a_worker_printed() -> None:
    for e in sample_runs.hostile()["experiments"]:
        for name, value in report.properties(e):
            element = ET.Element("property", name=name, value=value)
            again = ET.fromstring(ET.tostring(element, encoding="unicode").encode("utf-8"))
            assert again.get("value") == value


def test_the_summary_has_the_matrix_and_each_failure_with_sentence_and_replay() -> None:
    text = report.step_summary(sample_runs.broken())
    assert "| subject | request-wire | before-commit | reply-wire | after-commit |" in text
    assert "DOUBLE CHARGE" in text
    for e in sample_runs.broken()["experiments"][:4]:
        assert f"```sh\n{e['replay']}\n```" in text
        assert report.sentence(e).split(":")[0].replace("_", "\\_").replace("(", "\\(").replace(")", "\\)") in text


def test_hostile_text_stays_text_in_the_summary() -> None:
    text = report.step_summary(sample_runs.hostile())
    prose = re.sub(r"(`{3,})sh\n.*?\n\1", "", text, flags=re.DOTALL)
    assert not re.search(r"<script|<b>|<img|@everyone|(?<!\\)\$\{\{|[\x00-\x09\x0b-\x1f\u202e]", prose)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4, 3}
    text.encode("utf-8")


def test_a_summary_keeps_below_githubs_limit() -> None:
    many = [experiment(f"{n}" + "s" * 150, verdict="double-charge", events=[]) for n in range(9000)]
    text = report.step_summary(run(many, []))
    assert len(text.encode()) < 2**20
    assert text.endswith("the rest is in the report.\n")


def test_annotations_stand_at_the_subjects_own_line_and_are_escaped() -> None:
    lines = report.error_annotations(sample_runs.broken())
    assert lines[0].startswith(
        "::error file=myapp/billing.py,line=41,title=DOUBLE CHARGE%3A myapp.billing%3Acharge_invoice%2C "
    )
    assert "%0AReplay: pytest scenarios/" in lines[0]
    for line in [*lines, *report.error_annotations(sample_runs.hostile())]:
        assert line.startswith("::error ")
        assert "\n" not in line
        assert "\r" not in line


def test_an_absolute_source_becomes_a_path_in_the_repository(tmp_path: Path) -> None:
    source = f"{tmp_path}/app/jobs,weekly.py:9"
    made = run([experiment("x", verdict="double-charge", events=[])], [subject("x", source=source)])
    assert report.error_annotations(made, tmp_path)[0].startswith("::error file=app/jobs%2Cweekly.py,line=9,title=")


def test_a_failure_without_a_source_is_annotated_all_the_same_and_more_than_ten_are_counted() -> None:
    many = [experiment(f"s{n}", verdict="double-charge", events=[]) for n in range(14)]
    lines = report.error_annotations(run(many, []))
    assert len(lines) == 10
    assert lines[0].startswith("::error title=DOUBLE CHARGE")
    assert lines[-1] == "::error title=lockproof::5 failures more are in the report"
    assert report.error_annotations(sample_runs.passing()) == []


def test_the_step_summary_is_appended_where_github_says(tmp_path: Path) -> None:
    target = tmp_path / "summary.md"
    target.write_text("before\n")
    assert report.write_step_summary(sample_runs.hostile(), env={"GITHUB_STEP_SUMMARY": str(target)})
    assert target.read_text().startswith("before\n## ")
    assert not report.write_step_summary(sample_runs.empty(), env={})


def test_the_command_draws_a_report_and_its_status_says_whether_the_run_was_green(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    green = str(report.write_results(sample_runs.passing(), tmp_path / "green" / "results.json"))
    red = str(report.write_results(sample_runs.broken(), tmp_path / "red" / "results.json"))
    assert main([green, "-o", str(tmp_path / "out")]) == 0
    assert "Report: " in capsys.readouterr().out
    assert (tmp_path / "out" / "index.html").read_text().startswith("<!doctype html>")
    assert not (tmp_path / "out" / "results.json").exists()
    assert main([red, "-o", str(tmp_path / "out")]) == 1
    assert main([green, red, "-o", str(tmp_path / "both")]) == 1
    merged = report.load(tmp_path / "both" / "results.json")
    assert {e["source"] for e in merged["experiments"] if "source" in e} == {"green", "red"}


def test_a_comparison_fails_only_when_a_verdict_got_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = str(report.write_results(run([experiment("x", events=[])]), tmp_path / "good.json"))
    bad = str(report.write_results(run([experiment("x", verdict="double-charge", events=[])]), tmp_path / "bad.json"))
    assert main(["--compare", good, bad, "-o", str(tmp_path)]) == 1
    assert main(["--compare", bad, good, "-o", str(tmp_path)]) == 0
    assert "1 verdict is better" in capsys.readouterr().out
    page = (tmp_path / "index.html").read_text()
    assert page.index("What changed: 1 verdict is better") < page.index("Every subject, every kind of fault")


def test_the_command_says_what_is_wrong_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text('{"schema": 2, "exp')
    whole = str(report.write_results(sample_runs.empty(), tmp_path / "ok.json"))
    (tmp_path / "file").write_text("")
    for arguments, says in [
        ([str(cut)], "ends in the middle"),
        ([str(tmp_path / "none.json")], "No such file"),
        (["--compare", whole], "takes two files"),
        ([whole, "-o", str(tmp_path / "file")], "could not be written"),
    ]:
        assert main(["-o", str(tmp_path / "out"), *arguments]) == 2
        told = capsys.readouterr().err
        assert says in told
        assert told.count("\n") == 1


def test_the_command_runs_as_a_module_and_survives_a_poor_terminal(tmp_path: Path) -> None:
    file = report.write_results(sample_runs.hostile(), tmp_path / "results.json")
    command = [sys.executable, "-m", "harness.report", str(file), "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii", "PATH": ""})
    assert done.returncode == 1, done.stderr
    assert b"\x1b" not in done.stdout
