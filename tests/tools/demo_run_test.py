"""tools/demo-run with a fake `generate` and a fake `residctl`: it must say so whenever something is not as claimed."""
import json
import unittest

from fakes import ScriptTest

GENERATE = r"""
while [ $# -gt 0 ]; do
  case $1 in --timings) timings=$2; shift ;; esac
  shift
done
printf '{"load_s":0.1,"ttft_s":0.02,"tokens":3,"tok_s":50,"token_ids":[1,2,3]}' >"$timings"
printf "${TEXT:- will start.}"
"""
RESIDCTL = r"""
while [ "$1" != -- ]; do
  case $1 in --report) report=$2 ;; esac
  shift
done
shift
%s
printf '%s' >"$report"
exec "$@"
"""
MIB = 1 << 20


class DemoRun(ScriptTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model.gguf"
        self.model.write_bytes(b"GGUF" * 4096)
        self.fake("generate", GENERATE)
        self.fake_residctl()

    def fake_residctl(self, first=":", **changes):
        report = {"budget_bytes": 12 * MIB, "resident_peak_bytes": 11 * MIB, "kernel_peak_bytes": 12 * MIB,
                  "bytes_fetched": 30 * MIB, "chunk_max": 2 * MIB, "budget_kept": True} | changes
        self.fake("residctl", RESIDCTL % (first, json.dumps({k: v for k, v in report.items() if v is not None})))

    def demo(self, *options):
        return self.run_script("tools/demo-run", "--bin", self.fakes, "--model", self.model, *options)

    def test_equal_texts_and_kept_budgets_succeed(self):
        result = self.demo()
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("plain mmap", "--ram 50%", "--ram 25%", "50.0", "30.0 MiB", "The kernel will start."):
            self.assertIn(part, result.stdout)
        self.assertIn("every run gave the same bytes", result.stdout)

    def test_json_is_one_document_with_a_row_a_run(self):
        result = self.demo("--json", "--ram", "4MiB")
        document = json.loads(result.stdout)
        self.assertEqual((document["ok"], [row["run"] for row in document["runs"]]),
                         (True, ["plain mmap", "--ram 4MiB"]))
        self.assertEqual(document["runs"][1]["bytes_read"], 30 * MIB)

    def test_a_text_that_differs_is_a_failure_and_names_the_byte(self):
        self.fake_residctl(first="export TEXT=' will stop.'")
        result = self.demo()
        self.assert_failure_line(result, 1, "--ram 50%", "differs", "at byte 8")
        self.assertIn("demo: failed", result.stdout)
        self.assertIs(json.loads(self.demo("--json").stdout)["ok"], False)

    def test_one_chunk_over_the_budget_is_allowed(self):
        self.fake_residctl(kernel_peak_bytes=14 * MIB)
        self.assertEqual(self.demo().returncode, 0)

    def test_more_than_a_chunk_over_by_the_kernels_figure_is_a_failure(self):
        self.fake_residctl(kernel_peak_bytes=14 * MIB + 4096)
        self.assert_failure_line(self.demo(), 1, "--ram 50%", "budget was exceeded")

    def test_more_than_a_chunk_over_by_our_own_figure_is_a_failure(self):
        self.fake_residctl(resident_peak_bytes=14 * MIB + 4096)
        self.assert_failure_line(self.demo(), 1, "--ram 50%", "budget was exceeded")

    def test_the_reports_own_verdict_counts_too(self):
        self.fake_residctl(budget_kept=False)
        self.assert_failure_line(self.demo(), 1, "budget was exceeded")

    def test_no_figure_from_the_kernel_is_a_failure(self):
        self.fake_residctl(kernel_peak_bytes=0)
        self.assert_failure_line(self.demo(), 1, "the kernel gave no figure")
        self.fake_residctl(kernel_peak_bytes=None)
        self.assert_failure_line(self.demo(), 1, "kernel_peak_bytes")

    def test_a_run_that_read_nothing_through_the_pager_is_a_failure(self):
        self.fake_residctl(bytes_fetched=0)
        self.assert_failure_line(self.demo(), 1, "was not read through the pager")

    def test_a_run_that_fails_shows_its_own_words(self):
        self.fake_residctl(first="echo residctl: a : b : c >&2; exit 1")
        result = self.demo()
        self.assert_failure_line(result, 1, "demo: residctl run --ram 50%", "exit code 1")
        self.assertIn("residctl: a : b : c", result.stderr)

    def test_a_machine_that_cannot_is_exit_code_3(self):
        self.fake_residctl(first="exit 3")
        self.assertEqual(self.demo().returncode, 3)

    def test_a_program_that_is_not_built(self):
        (self.fakes / "generate").unlink()
        self.assert_failure_line(self.demo(), 1, "generate", "No such file")

    def test_no_text_at_all_is_a_failure(self):
        self.fake("generate", GENERATE.replace('printf "${TEXT', ': "${TEXT'))
        self.assert_failure_line(self.demo(), 1, "plain mmap", "no text")

    def test_a_model_that_does_not_exist(self):
        self.model.unlink()
        self.assert_failure_line(self.demo(), 2, "model.gguf", "no such file")


if __name__ == "__main__":
    unittest.main()
