"""bench/run over fake benchmark programs: one file of all figures, and no failure that goes unseen."""
import json
import subprocess
import unittest

from fakes import ROOT, ScriptTest

PROGRAM = r"""
for argument; do
  case $argument in
    --benchmark_list_tests=true) list=1 ;;
    --benchmark_filter=*) filter=${argument#*=} ;;
    --benchmark_out=*) out=${argument#*=} ;;
  esac
done
if [ "$list" ]; then echo %(benchmark)s | grep -E "$filter"; exit 0; fi
echo "the table of %(benchmark)s, $*"
printf '{"context": {"library_build_type": "release"}, "benchmarks": [%%s]}' '%(entries)s' >"$out"
exit %(code)s
"""


class BenchRun(ScriptTest):
    def setUp(self):
        super().setUp()
        self.programs = self.folder / "build" / "bench"
        self.programs.mkdir(parents=True)
        self.out = self.folder / "out"

    def program(self, name, benchmark, code=0, entries=None):
        if entries is None:
            entries = json.dumps({"name": benchmark, "run_name": benchmark, "real_time": 1, "cpu_time": 1})
        self.fake(name, PROGRAM % {"benchmark": benchmark, "entries": entries, "code": code}, self.programs)

    def bench(self, *options):
        return self.run_script("bench/run", "--build", self.folder / "build", "--out", self.out, *options)

    def merged(self):
        return json.loads((self.out / "bench.json").read_text())

    def test_all_programs_are_run_and_merged(self):
        self.program("one_bench", "a/1")
        self.program("two_bench", "a/1")
        result = self.bench()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the table of a/1", result.stdout)
        self.assertIn("--benchmark_format=console", result.stdout)
        self.assertEqual([(b["program"], b["name"]) for b in self.merged()["benchmarks"]],
                         [("one_bench", "a/1"), ("two_bench", "a/1")])
        self.assertTrue((self.out / "one_bench.json").exists() and (self.out / "two_bench.json").exists())

    def test_the_machine_is_recorded(self):
        self.program("one_bench", "a")
        self.bench()
        context = self.merged()["context"]
        for fact in ("kernel", "cpu", "cpus", "date", "commit", "load_before", "load_after"):
            self.assertIn(fact, context)
        self.assertEqual(context["programs"], {"one_bench": {"library_build_type": "release"}})

    def test_compare_takes_the_result(self):
        self.program("one_bench", "a")
        self.bench()
        self.assertEqual(self.run_script("bench/compare", self.out / "bench.json", self.out / "bench.json").returncode, 0)

    def test_a_filter_leaves_out_what_has_no_such_benchmark(self):
        self.program("one_bench", "fault/4096")
        self.program("two_bench", "miss/lru")
        self.fake("trace_bench", "exit 1", self.programs)
        result = self.bench("--filter", "^fault")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([b["name"] for b in self.merged()["benchmarks"]], ["fault/4096"])
        self.assertIn("--benchmark_filter=^fault", result.stdout)

    def test_a_filter_that_nothing_matches_is_wrong_usage(self):
        self.program("one_bench", "fault/4096")
        self.assert_failure_line(self.bench("--filter", "nothing"), 2, "--filter nothing")

    def test_programs_may_be_named(self):
        self.program("one_bench", "a")
        self.program("two_bench", "b")
        self.assertEqual(self.bench("two_bench", "--repetitions", "3").returncode, 0)
        self.assertEqual([b["program"] for b in self.merged()["benchmarks"]], ["two_bench"])
        self.assert_failure_line(self.bench("three_bench"), 2, "three_bench", "one_bench, two_bench")

    def test_a_program_that_fails_is_named_and_the_others_run(self):
        self.program("one_bench", "a", code=7)
        self.program("two_bench", "b")
        self.assert_failure_line(self.bench(), 1, "one_bench", "exit code 7")
        self.assertEqual([b["program"] for b in self.merged()["benchmarks"]], ["two_bench"])
        self.assertEqual(self.merged()["context"]["failed"], ["one_bench"])

    def test_a_program_that_judges_itself_is_run_as_it_is(self):
        self.program("one_bench", "a")
        self.fake("trace_bench", 'test $# = 0 || exit 5; echo "seconds"; exit 1', self.programs)
        result = self.bench()
        self.assertIn("seconds", result.stdout)
        self.assert_failure_line(result, 1, "trace_bench", "exit code 1")

    def test_a_result_that_is_no_json_is_a_failure_and_an_older_one_goes(self):
        self.out.mkdir()
        (self.out / "bench.json").write_text("of yesterday")
        self.program("one_bench", "a", entries="{")
        self.assert_failure_line(self.bench(), 1, "one_bench", "one_bench.json")
        self.assertFalse((self.out / "bench.json").exists())

    def test_what_the_machine_cannot_measure_is_told_at_the_end(self):
        self.program("one_bench", "a", entries=json.dumps(
            {"name": "a", "run_name": "a", "error_occurred": True, "error_message": "no userfaultfd"}))
        result = self.bench()
        self.assertEqual(result.returncode, 0)
        self.assertIn("not measured: one_bench/a: no userfaultfd", result.stdout)

    def test_a_build_without_benchmarks_is_wrong_usage(self):
        self.assert_failure_line(self.bench(), 2, "no program")
        self.programs.rmdir()
        self.assert_failure_line(self.bench(), 2, "build/bench", "RESID_BENCH=ON")

    def test_make_bench_hands_the_filter_on(self):
        would = subprocess.run(["make", "-n", "-C", ROOT, "bench", "BENCH_FILTER=^fault/.*/4096", "BENCH_ARGS=--repetitions 5"],
                               capture_output=True, text=True, check=True).stdout
        self.assertIn("bench/run --filter='^fault/.*/4096' --repetitions 5\n", would)


if __name__ == "__main__":
    unittest.main()
