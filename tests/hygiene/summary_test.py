#!/usr/bin/env python3
"""How .ci/summary.py counts: run as it is, on logs and reports written here."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "summary.py"

PASSED = '<testcase name="{0}" classname="A" status="run" result="completed"/>'
FAILED = '<testcase name="{0}" classname="A" status="run" result="completed"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="{0}" classname="A" status="run" result="skipped"><skipped message="no GPU"/></testcase>'
DISABLED = '<testcase name="{0}" classname="A" status="notrun" result="suppressed"/>'


def test(name, result="OK", returncode=0, stdout=""):
    command = [f"/build/tests/{name}", "--flag"]
    return {"name": name, "result": result, "returncode": returncode, "stdout": stdout, "command": command}


class Summary(unittest.TestCase):
    def summarize(self, tests, reports=None, status="0", others=()):
        """Returns (lines printed, exit status). `reports`: file name -> list of test cases."""
        with tempfile.TemporaryDirectory() as folder:
            log, results = pathlib.Path(folder) / "testlog.json", pathlib.Path(folder) / "results"
            log.write_text("".join(json.dumps(test) + "\n" for test in tests))
            results.mkdir()
            for name, cases in (reports or {}).items():
                text = "".join(case.format(i) for i, case in enumerate(cases))
                (results / name).write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
            command = [sys.executable, SUMMARY, log, results, status, *others]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.stdout.splitlines(), done.returncode

    def test_counts_cases_of_gtest_programs_and_one_for_each_other_test(self):
        reports = {"unit-core.xml": [PASSED, PASSED, DISABLED], "unit-cost.xml": [PASSED]}
        lines, status = self.summarize([test("unit-core"), test("unit-cost"), test("script")], reports)
        self.assertEqual((lines, status), (["4 passed, 0 failed"], 0))

    def test_says_what_was_skipped_and_why(self):
        tests = [test("gpu-gemm"), test("page", "SKIP", 77, "no browser\n"), test("unit-core")]
        lines, status = self.summarize(tests, {"gpu-gemm.xml": [SKIPPED], "unit-core.xml": [PASSED]})
        self.assertEqual(lines, ["skipped: A.0: no GPU", "skipped: page: no browser", "1 passed, 0 failed, 2 skipped"])
        self.assertEqual(status, 0)

    def test_shows_the_output_of_a_failing_test(self):
        tests = [test("unit-core", "FAIL", 1, "expected 3\n"), test("script", "FAIL", 3, "bad\n")]
        lines, status = self.summarize(tests, {"unit-core.xml": [PASSED, FAILED]}, "2")
        self.assertEqual((lines[-1], status), ("1 passed, 2 failed", 1))
        self.assertIn("expected 3", lines)
        self.assertIn("---- failed: script (FAIL, exit status 3)", lines)

    def test_a_crash_counts_although_no_report_was_written(self):
        lines, status = self.summarize([test("unit-core", "FAIL", -6), test("ok")], {}, "1")
        self.assertEqual((lines[-1], status), ("1 passed, 1 failed", 1))

    def test_a_failure_outside_the_cases_counts(self):
        lines, _ = self.summarize([test("unit-core", "TIMEOUT", -15)], {"unit-core.xml": [PASSED]}, "1")
        self.assertEqual(lines[-1], "1 passed, 1 failed")

    def test_a_program_that_runs_twice_counts_twice(self):
        tests = [test("unit-core"), test("unit-core", "FAIL", 1), test("unit-core", "FAIL", -6)]
        lines, _ = self.summarize(tests, {"unit-core.xml": [PASSED], "unit-core_1.xml": [FAILED]}, "2")
        self.assertEqual(lines[-1], "1 passed, 2 failed")

    def test_tests_outside_meson_count(self):
        lines, status = self.summarize([test("ok")], others=["determinism=passed"])
        self.assertEqual((lines[-1], status), ("2 passed, 0 failed", 0))
        lines, status = self.summarize([test("ok")], others=["determinism=failed"])
        self.assertEqual((lines[-1], status), ("1 passed, 1 failed", 1))

    def test_no_test_at_all_is_a_failure(self):
        self.assertEqual(self.summarize([]), (["0 passed, 0 failed"], 1))

    def test_a_failing_meson_is_a_failure(self):
        lines, status = self.summarize([test("ok")], status="1")
        self.assertEqual((lines[-1], status), ("1 passed, 1 failed", 1))


if __name__ == "__main__":
    unittest.main()
