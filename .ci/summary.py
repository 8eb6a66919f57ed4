#!/usr/bin/env python3
"""Counts a test run: every GoogleTest case, and one for each test of another kind.

usage: summary.py TESTLOG GTEST_DIR MESON_STATUS [NAME=passed|failed]...

TESTLOG is Meson's testlog.json (one JSON object a line), GTEST_DIR holds the XML that each GoogleTest program wrote
(GTEST_OUTPUT=xml:GTEST_DIR/), MESON_STATUS is the exit status of `meson test`, and the rest are tests that ran outside
Meson. Prints the output of each failing test, the reason of each skip, and `N passed, N failed[, N skipped]` last.
Exits 1 when a test failed or none ran.
"""

import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree

SHOWN_LINES = 200  # of the output of one failing test


def show_failure(name, why, output):
    lines = output.splitlines()
    print(f"\n---- failed: {name} ({why})")
    if len(lines) > SHOWN_LINES:
        print(f"({len(lines) - SHOWN_LINES} lines left out)")
    print("\n".join(lines[-SHOWN_LINES:]))


def gtest_cases(path):
    """Yields (outcome, name, message) for each case that the program ran."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if (skip := case.find("skipped")) is not None:
            yield "skipped", name, skip.get("message", "")
        elif case.get("status") == "run":
            yield ("passed" if case.find("failure") is None else "failed"), name, ""


def read_gtest_reports(folder):
    """Returns program -> [cases of each run]. A program that ran more than once wrote NAME.xml, NAME_1.xml, ..."""
    paths = {path.stem: path for path in sorted(pathlib.Path(folder).glob("*.xml"))}
    programs = collections.defaultdict(list)
    for stem, path in paths.items():
        base = re.sub(r"_\d+$", "", stem)
        programs[base if base in paths else stem].append(list(gtest_cases(path)))
    return programs


def one_line(text):
    return " ".join(text.split())[-300:]


def count_test(test, explained, counts):
    """Counts what the GoogleTest reports leave open: other tests, and programs that fail outside their cases.

    `explained`: GoogleTest program -> how many of its failing runs still have a failed case to show for it.
    """
    name, skipped = test["name"], test["result"] == "SKIP"
    failed = not skipped and test["result"] not in ("OK", "EXPECTEDFAIL")
    output = (test.get("stdout") or "") + (test.get("stderr") or "")
    program = pathlib.Path(test["command"][0]).name
    if program not in explained:
        counts["skipped" if skipped else "failed" if failed else "passed"] += 1
        if skipped:
            print(f"skipped: {name}: {one_line(output)}")
    elif failed and explained[program]:
        explained[program] -= 1
    elif failed:
        counts["failed"] += 1
    if failed:
        show_failure(name, f"{test['result']}, exit status {test['returncode']}", output)


def main(testlog, gtest_dir, meson_status, *others):
    counts = collections.Counter()
    programs = read_gtest_reports(gtest_dir)
    explained = {
        program: sum(any(outcome == "failed" for outcome, _, _ in cases) for cases in runs)
        for program, runs in programs.items()
    }
    for outcome, name, message in (case for runs in programs.values() for cases in runs for case in cases):
        counts[outcome] += 1
        if outcome == "skipped":
            print(f"skipped: {name}: {one_line(message)}")
    log = pathlib.Path(testlog)
    for line in log.read_text().splitlines() if log.exists() else []:
        count_test(json.loads(line), explained, counts)
    for name, outcome in (other.rsplit("=", 1) for other in others):
        counts[outcome] += 1
        if outcome == "failed":
            print(f"\n---- failed: {name} (its output is above)")
    if meson_status != "0" and not counts["failed"]:
        print(f"\n---- failed: meson test itself, exit status {meson_status}")
        counts["failed"] += 1
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
