"""tools/get-llama where nothing is downloaded: a llama.cpp of one's own, a full cache, and every way to fail."""
import subprocess
import time
import unittest

from fakes import ROOT, ScriptTest

PROGRAMS = ("llama-completion", "llama-server", "llama-bench")


class GetLlama(ScriptTest):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.dir = self.cache / "llama-3.21.1"

    def fill_cache(self):
        (self.dir / "bin").mkdir(parents=True)
        (self.dir / "include").mkdir()
        for name in ("bin/libllama.so", "include/ggml-backend-impl.h", "source.bundle"):
            (self.dir / name).write_text("")

    def get(self, *options, **environment):
        return self.run_script("tools/get-llama", *options, **({"RESIDCTL_CACHE": self.cache} | environment))

    def assert_nothing_left(self):
        self.assertEqual([path.name for path in self.cache.iterdir()], ["lock"])

    def test_prints_the_folder_of_a_full_cache_and_fetches_nothing(self):
        self.fill_cache()
        self.fake("npm", "echo npm was called >&2; exit 1")
        result = self.get("--print")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{self.dir}/bin\n", ""))

    def test_prints_nothing_unless_asked(self):
        self.fill_cache()
        result = self.get()
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_programs_that_run_are_not_built_again(self):
        self.fill_cache()
        for program in PROGRAMS:
            self.fake(program, "exit 0", self.dir / "bin")
        self.fake("cmake", "exit 1")
        self.assertEqual(self.get("--programs").returncode, 0)

    def test_programs_that_do_not_start_are_built_again(self):
        self.fill_cache()
        for program in PROGRAMS:
            self.fake(program, "exit 127", self.dir / "bin")
        self.fake("git", "exit 0")
        self.fake("cmake", "echo cmake was called; exit 1")
        result = self.get("--programs")
        self.assert_failure_line(result, 1, "building llama-completion")
        self.assertIn("cmake was called", result.stderr)
        self.assertTrue((self.dir / "bin/libllama.so").exists(), "a failed build must not cost the libraries")

    def test_a_tarball_that_is_not_the_pinned_one_is_refused(self):
        tarballs = self.folder / "tarballs"
        tarballs.mkdir()
        (tarballs / "node-llama-cpp-linux-x64-3.21.1.tgz").write_bytes(b"something else")
        result = self.get("--print", RESIDCTL_NPM_TARBALLS=tarballs)
        self.assert_failure_line(result, 1, "@node-llama-cpp/linux-x64@3.21.1", "sha512 differs")
        self.assertEqual(result.stdout, "")
        self.assert_nothing_left()

    def test_a_tarball_that_is_not_there_is_named(self):
        result = self.get(RESIDCTL_NPM_TARBALLS=self.folder)
        self.assert_failure_line(result, 1, "node-llama-cpp-linux-x64-3.21.1.tgz", "npm pack")

    def test_shows_what_npm_said_when_it_fails(self):
        self.fake("npm", "echo ENOTFOUND registry >&2; exit 1")
        result = self.get()
        self.assert_failure_line(result, 1, "npm cannot fetch it")
        self.assertIn("ENOTFOUND registry", result.stderr)
        self.assert_nothing_left()

    def test_what_a_stopped_one_left_is_removed_and_never_used(self):
        left = self.cache / ".new.abcdef/llama/bin"
        left.mkdir(parents=True)
        (left / "libllama.so").write_text("half")
        self.fake("npm", "exit 1")
        self.assertEqual(self.get().returncode, 1)
        self.assert_nothing_left()

    def test_two_at_once_take_turns(self):
        (self.folder / "order").write_text("")
        self.fake("npm", f"echo in >>{self.folder}/order; sleep 1; echo out >>{self.folder}/order; exit 1")
        first = subprocess.Popen([str(ROOT / "tools/get-llama")], stderr=subprocess.DEVNULL,
                                 env={"PATH": f"{self.fakes}:/usr/bin:/bin", "RESIDCTL_CACHE": str(self.cache)})
        deadline = time.monotonic() + 30
        while not (self.folder / "order").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        second = self.get()
        first.wait(timeout=30)
        self.assertIn("waiting for another", second.stderr)
        self.assertEqual((self.folder / "order").read_text().split(), ["in", "out", "in", "out"])

    def test_a_llama_of_ones_own_is_found_where_cmake_puts_it(self):
        for place in (".", "bin", "build/bin", "lib"):
            own = self.folder / f"own-{place.replace('/', '-')}"
            (own / place).mkdir(parents=True)
            (own / place / "libllama.so").write_text("")
            result = self.get("--print", LLAMA_CPP_DIR=own)
            self.assertEqual(result.stdout.strip(), str((own / place).resolve()), result.stderr)
        self.assertFalse(self.cache.exists(), "nothing is cached for it")

    def test_a_llama_of_ones_own_without_libraries(self):
        self.assert_failure_line(self.get("--print", LLAMA_CPP_DIR=self.folder), 2, "no libllama.so", "unset")

    def test_a_llama_of_ones_own_without_programs(self):
        (self.folder / "libllama.so").write_text("")
        result = self.get("--programs", LLAMA_CPP_DIR=self.folder)
        self.assert_failure_line(result, 1, "llama-completion", "no such program")

    def test_another_processor_is_told_what_to_do(self):
        self.fake("uname", "echo Linux riscv64")
        self.assert_failure_line(self.get(), 3, "Linux riscv64", "LLAMA_CPP_DIR")

    def test_a_cache_that_cannot_be_made(self):
        (self.folder / "file").write_text("")
        result = self.get(RESIDCTL_CACHE=self.folder / "file/cache")
        self.assert_failure_line(result, 1, "file/cache", "RESIDCTL_CACHE")

    def test_wrong_usage(self):
        self.assert_failure_line(self.get("--nope"), 2, "--nope")


if __name__ == "__main__":
    unittest.main()
