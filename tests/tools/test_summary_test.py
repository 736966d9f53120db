"""tools/test-summary on ctest's JUnit files."""
import unittest

from fakes import ScriptTest

SKIPPED_CASE = "[ RUN      ] A.b\n/x/y.cpp:7: Skipped\nswap is on here\n\n[  SKIPPED ] A.b (0 ms)\n"


def case(name, status="run", inside="", output=""):
    return (f'<testcase name="{name}" classname="{name}" time="0.1" status="{status}">{inside}'
            f"<system-out>{output}</system-out></testcase>")


class TestSummary(ScriptTest):
    def summary(self, *suites):
        paths = []
        for number, cases in enumerate(suites):
            path = self.folder / f"{number}.xml"
            path.write_text(f'<?xml version="1.0"?><testsuite>{"".join(cases)}</testsuite>')
            paths.append(path)
        return self.run_script("tools/test-summary", *paths)

    def test_the_closing_line_counts_all_suites_and_comes_last(self):
        result = self.summary([case("a"), case("b")], [case("c")])
        self.assertEqual((result.returncode, result.stdout), (0, "100% tests passed, 0 tests failed out of 3\n"))

    def test_failures_are_named_and_never_rounded_away(self):
        result = self.summary([case(f"t{i}") for i in range(999)],
                              [case("broken", "fail", '<failure message="Failed"/>')])
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED  broken  Failed", result.stdout)
        self.assertEqual(result.stdout.splitlines()[-1], "99% tests passed, 1 tests failed out of 1000")

    def test_a_test_that_never_ran_is_a_failure(self):
        result = self.summary([case("gone", "notrun")])
        self.assertEqual(result.returncode, 1)

    def test_a_skipped_program_gives_its_reason(self):
        result = self.summary([case("s", "notrun", '<skipped message="SKIP_RETURN_CODE=77"/>', "no GPU here\n")])
        self.assertEqual(result.returncode, 0)
        self.assertIn("1 skipped:\n  s: no GPU here\n", result.stdout)

    def test_a_skipped_case_inside_a_program_that_passed_is_counted(self):
        result = self.summary([case("a", output=SKIPPED_CASE * 2)])
        self.assertEqual(result.returncode, 0)
        self.assertIn("2 skipped:\n  a: swap is on here (2 cases)\n", result.stdout)

    def test_a_skipped_case_of_a_python_test_is_counted(self):
        result = self.summary([case("p", output="test_x (m.C.test_x) ... skipped 'no linter'\n\nOK (skipped=1)\n")])
        self.assertIn("1 skipped:\n  p: no linter\n", result.stdout)

    def test_no_test_at_all_is_a_failure(self):
        self.assertEqual(self.summary([]).returncode, 1)


if __name__ == "__main__":
    unittest.main()
