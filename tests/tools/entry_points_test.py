"""The commands that the README names: they explain themselves, refuse what they do not know, and stay lint-free."""
import shutil
import subprocess
import unittest

from fakes import ROOT, ScriptTest

SCRIPTS = ("check", "demo", ".ci/run", "tools/bootstrap", "tools/get-llama")


class EntryPoints(ScriptTest):
    def test_help_says_how_to_call_it(self):
        for script in ("check", "demo", "tools/bootstrap", "tools/get-llama"):
            result = self.run_script(script, "--help")
            self.assertEqual((result.returncode, result.stdout.startswith("usage: ")), (0, True), script)

    def test_an_unknown_option_is_wrong_usage(self):
        for script in ("check", "demo"):
            self.assert_failure_line(self.run_script(script, "--nope"), 2, script, "--nope")

    def test_an_option_without_its_value_is_wrong_usage(self):
        self.assert_failure_line(self.run_script("check", "--jobs"), 2, "--jobs")
        self.assert_failure_line(self.run_script("check", "--jobs", "0"), 2, "--jobs 0")
        self.assert_failure_line(self.run_script("demo", "--model"), 2, "--model")

    def test_make_help_lists_the_entry_points(self):
        listed = subprocess.run(["make", "--no-print-directory", "-C", ROOT, "help"], capture_output=True, text=True,
                                check=True).stdout
        for target in ("build", "check", "check-storm", "bench", "install", "asan", "tsan", "fuzz", "clean"):
            self.assertRegex(listed, rf"(?m)^{target} ")

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_shellcheck_finds_nothing(self):
        done = subprocess.run(["shellcheck", *(str(ROOT / script) for script in SCRIPTS)], capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # so that the reason of a skip is on the output
