"""Helpers of the script tests: a folder of fake commands to put first on PATH, and a way to run a script."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="resid-tools-test-")
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)
        self.fakes = self.folder / "fakes"
        self.fakes.mkdir()

    def fake(self, name, body, folder=None):
        """A command of that name: a shell script that has `body`."""
        path = (folder or self.fakes) / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def run_script(self, *command, only_fakes=False, **environment):
        """Runs a script of the tree; with only_fakes, nothing but the fakes is on PATH."""
        path = str(self.fakes) if only_fakes else f"{self.fakes}:{os.environ['PATH']}"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "RESIDCTL_"))}
        return subprocess.run([str(ROOT / command[0]), *map(str, command[1:])], capture_output=True, text=True,
                              check=False, timeout=60, stdin=subprocess.DEVNULL,
                              env=clean | {"PATH": path} | {k: str(v) for k, v in environment.items()})

    def assert_failure_line(self, result, code, *parts):
        """Exit code, and a `name: what : why : what to do` line that holds the parts."""
        self.assertEqual(result.returncode, code, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.count(" : ") >= 2]
        self.assertTrue(any(all(part in line for part in parts) for line in lines), result.stderr)
