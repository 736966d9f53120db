"""bench/compare on small runs made by hand: what counts as slower, what as noise, and what cannot be compared."""
import json
import unittest

from fakes import ScriptTest


def entry(name, time=100.0, unit="ns", **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1, "repetition_index": 0, "threads": 1,
            "iterations": 10, "real_time": time, "cpu_time": time, "time_unit": unit} | more


def repeated(name, times, **more):
    return [entry(name, time, repetitions=len(times), repetition_index=i, **more) for i, time in enumerate(times)]


def aggregate(name, kind, time, **more):
    return entry(name, time, run_type="aggregate", aggregate_name=kind, aggregate_unit="time") | {"name": f"{name}_{kind}"} | more


class BenchCompare(ScriptTest):
    def write(self, name, *entries, **context):
        path = self.folder / name
        path.write_text(json.dumps({"context": context, "benchmarks": list(entries)}))
        return path

    def compare(self, old, new, *options):
        """Compares two lists of entries."""
        return self.run_script("bench/compare", self.write("old.json", *old), self.write("new.json", *new), *options)

    def rows(self, old, new, *options):
        """(benchmark, metric) -> row, and the exit code."""
        result = self.compare(old, new, "--json", *options)
        document = json.loads(result.stdout)
        return {(row["benchmark"], row["metric"]): row for row in document["rows"]}, result.returncode

    def verdict(self, old, new, *options, metric="real_time"):
        rows, code = self.rows(old, new, *options)
        return rows["a", metric]["verdict"], code

    def test_the_same_run_twice_is_no_change(self):
        result = self.compare([entry("a"), entry("b")], [entry("a"), entry("b")])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("4 figures, threshold 10 %: 0 slower, 0 faster, 0 noise, 0 changed", result.stdout)

    def test_slower_and_faster_are_marked_and_only_slower_fails(self):
        self.assertEqual(self.verdict([entry("a", 100)], [entry("a", 111)]), ("slower", 1))
        self.assertEqual(self.verdict([entry("a", 111)], [entry("a", 100)]), ("faster", 0))
        self.assertRegex(self.compare([entry("a", 100)], [entry("a", 150)]).stdout,
                         r"(?m)^a +real_time +100 ns +150 ns +1\.50  slower$")

    def test_the_threshold_may_be_given(self):
        self.assertEqual(self.verdict([entry("a", 100)], [entry("a", 109)]), ("same", 0))
        self.assertEqual(self.verdict([entry("a", 100)], [entry("a", 109)], "--threshold", "5"), ("slower", 1))
        self.assertEqual(self.verdict([entry("a", 100)], [entry("a", 300)], "--threshold=200"), ("same", 0))

    def test_a_threshold_that_means_nothing_is_wrong_usage(self):
        for threshold in ("0", "-1", "nan"):
            self.assert_failure_line(self.compare([entry("a")], [entry("a")], f"--threshold={threshold}"), 2, "--threshold")

    def test_a_rate_is_better_when_it_is_higher(self):
        def rate(value):
            return [entry("a", bytes_per_second=value)]
        self.assertEqual(self.verdict(rate(2e9), rate(1e9), metric="bytes_per_second"), ("slower", 1))
        self.assertEqual(self.verdict(rate(1e9), rate(2e9), metric="bytes_per_second"), ("faster", 0))

    def test_counters_of_time_count_and_others_only_change(self):
        rows, code = self.rows([entry("a", touch_p99_us=10.0, streams=1.0)], [entry("a", touch_p99_us=20.0, streams=4.0)])
        self.assertEqual(code, 1)
        self.assertEqual(rows["a", "touch_p99_us"]["verdict"], "slower")
        self.assertEqual(rows["a", "streams"]["verdict"], "changed")
        self.assertNotIn(("a", "iterations"), rows)

    def test_processor_time_beside_a_time_taken_by_hand_does_not_count(self):
        name = "fault/4096/manual_time"
        rows, code = self.rows([entry(name)], [entry(name) | {"cpu_time": 500}])
        self.assertEqual((rows[name, "cpu_time"]["verdict"], code), ("changed", 0))

    def test_times_are_compared_across_units(self):
        self.assertEqual(self.verdict([entry("a", 100_000)], [entry("a", 100, "us")]), ("same", 0))
        rows, _ = self.rows([entry("a", 100_000)], [entry("a", 0.3, "ms")])
        row = rows["a", "real_time"]
        self.assertEqual((row["unit"], round(row["old"], 6), row["new"], round(row["ratio"], 6)), ("ms", 0.1, 0.3, 3.0))

    def test_repetitions_are_compared_by_their_medians(self):
        rows, code = self.rows(repeated("a", [100, 101, 99]), repeated("a", [104, 103, 900]))
        self.assertEqual((rows["a", "real_time"]["old"], rows["a", "real_time"]["new"], code), (100, 104, 0))
        self.assertEqual(rows["a", "real_time"]["new_spread"], [103, 900])

    def test_a_difference_within_the_spread_is_noise(self):
        self.assertEqual(self.verdict(repeated("a", [100, 110, 140]), repeated("a", [130, 135, 150])), ("noise", 0))
        self.assertEqual(self.verdict(repeated("a", [100, 110, 120]), repeated("a", [130, 135, 150])), ("slower", 1))
        self.assertEqual(self.verdict([entry("a", 100)], repeated("a", [90, 130, 150])), ("noise", 0))

    def test_one_outlier_in_ten_does_not_hide_a_change(self):
        self.assertEqual(self.verdict(repeated("a", [100] * 9 + [500]), repeated("a", [200] * 10)), ("slower", 1))

    def test_aggregates_alone_will_do(self):
        def aggregates(median, deviation):
            return [aggregate("a", "mean", 1), aggregate("a", "median", median), aggregate("a", "stddev", deviation),
                    aggregate("a", "cv", 0.1, aggregate_unit="percentage")]
        self.assertEqual(self.verdict(aggregates(100, 5), aggregates(150, 5)), ("slower", 1))
        self.assertEqual(self.verdict(aggregates(100, 30), aggregates(150, 30)), ("noise", 0))

    def test_the_aggregates_beside_repetitions_are_not_counted_twice(self):
        both = [*repeated("a", [100, 101, 102]), aggregate("a", "median", 5000), aggregate("a", "stddev", 1)]
        rows, _ = self.rows(both, both)
        self.assertEqual(rows["a", "real_time"]["old"], 101)

    def test_fitted_complexities_are_passed_over(self):
        fit = {"name": "a_BigO", "run_name": "a", "run_type": "aggregate", "aggregate_name": "BigO", "real_coefficient": 1.0,
               "cpu_coefficient": 1.0, "big_o": "lgN", "time_unit": "ns"}
        self.assertEqual(self.verdict([entry("a"), fit], [entry("a"), fit]), ("same", 0))

    def test_benchmarks_of_one_run_alone_are_named_and_do_not_fail(self):
        result = self.compare([entry("a"), entry("gone")], [entry("a"), entry("fresh")])
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"(?m)^not in new \(.*new\.json\): gone$")
        self.assertRegex(result.stdout, r"(?m)^not in old \(.*old\.json\): fresh$")
        document = json.loads(self.compare([entry("a"), entry("gone")], [entry("a")], "--json").stdout)
        self.assertEqual((document["not_in_new"], document["not_in_old"]), ({"gone": ""}, {}))

    def test_a_benchmark_that_could_not_be_measured_says_why(self):
        skipped = {"name": "b", "run_name": "b", "run_type": "iteration", "error_occurred": True,
                   "error_message": "no large folios"}
        result = self.compare([entry("a"), entry("b")], [entry("a"), skipped])
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"(?m)^not in new .*: b: no large folios$")

    def test_a_counter_of_one_run_alone_is_named_and_does_not_fail(self):
        rows, code = self.rows([entry("a", old_us=1.0)], [entry("a", new_us=1.0)])
        self.assertEqual((rows["a", "old_us"]["verdict"], rows["a", "new_us"]["verdict"], code), ("only old", "only new", 0))

    def test_nothing_in_common_is_no_success(self):
        self.assert_failure_line(self.compare([entry("a")], [entry("b")]), 2, "old.json", "new.json", "in common")

    def test_zero_and_what_is_no_number_end_nothing(self):
        rows, code = self.rows([entry("a", zero_us=0.0, up_us=0.0, nan_us=float("nan"))],
                               [entry("a", zero_us=0.0, up_us=3.0, nan_us=1.0)])
        self.assertEqual((rows["a", "zero_us"]["verdict"], rows["a", "up_us"]["verdict"]), ("same", "slower"))
        self.assertEqual((rows["a", "up_us"]["ratio"], rows["a", "nan_us"]["verdict"], code), (None, "only new", 1))

    def test_a_merged_run_and_one_programs_own_file_name_benchmarks_alike(self):
        merged = self.write("merged.json", entry("a", program="pager_bench"), entry("a", program="policy_bench"))
        own = self.write("own.json", entry("a"), executable="/x/bench/pager_bench")
        result = self.run_script("bench/compare", "--json", merged, own)
        document = json.loads(result.stdout)
        self.assertEqual({row["benchmark"] for row in document["rows"]}, {"pager_bench/a"})
        self.assertEqual(document["not_in_new"], {"policy_bench/a": ""})

    def test_another_machine_is_told(self):
        old = self.write("old.json", entry("a"), kernel="6.1", cpu="x")
        new = self.write("new.json", entry("a"), kernel="6.18", cpu="x")
        result = self.run_script("bench/compare", old, new)
        self.assert_failure_line(result, 0, "kernel", "6.1 and 6.18")
        self.assertNotIn("cpu is not", result.stderr)

    def test_only_what_changed(self):
        out = self.compare([entry("a"), entry("b")], [entry("a"), entry("b", 300)], "--changed").stdout
        self.assertRegex(out, r"(?m)^b +real_time")
        self.assertNotRegex(out, r"(?m)^a ")

    def test_input_that_cannot_be_used_is_named(self):
        good = self.write("good.json", entry("a"))
        bad = {
            "empty.json": "", "cut.json": '{"benchmarks": [{"name": "a"', "list.json": "[]", "none.json": '{"context": {}}',
            "no-benchmark.json": '{"benchmarks": []}', "object.json": '{"benchmarks": {}}',
            "number.json": '{"benchmarks": [7]}', "nameless.json": '{"benchmarks": [{"real_time": 1, "cpu_time": 1}]}',
            "timeless.json": '{"benchmarks": [{"name": "a", "cpu_time": 1}]}',
            "text.json": '{"benchmarks": [{"name": "a", "real_time": "1", "cpu_time": 1}]}',
            "unit.json": '{"benchmarks": [{"name": "a", "real_time": 1, "cpu_time": 1, "time_unit": "fortnight"}]}',
            "unit-list.json": '{"benchmarks": [{"name": "a", "real_time": 1, "cpu_time": 1, "time_unit": []}]}',
            "deep.json": "[" * 100_000}
        for name, text in bad.items():
            path = self.folder / name
            path.write_text(text)
            with self.subTest(name):
                self.assert_failure_line(self.run_script("bench/compare", path, good), 2, "bench/compare", name)
                self.assert_failure_line(self.run_script("bench/compare", good, path), 2, "bench/compare", name)
        (self.folder / "binary.json").write_bytes(b"\xff\xfe\x00")
        (self.folder / "folder.json").mkdir()
        for name in ("binary.json", "absent.json", "folder.json"):
            self.assert_failure_line(self.run_script("bench/compare", good, self.folder / name), 2, name)


if __name__ == "__main__":
    unittest.main()
