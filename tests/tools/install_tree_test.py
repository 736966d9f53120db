"""`make install`, then a small program built against the installed tree alone, the two ways a user would: by
pkg-config and by find_package. Usage: install_tree_test.py BUILD-FOLDER"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "models/linnet-moe-q4.gguf"
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user C CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(resid CONFIG REQUIRED)
add_executable(user {source})
target_compile_options(user PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(user PRIVATE resid::resid)
"""


def run(*command, **environment):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env=os.environ | {k: str(v) for k, v in environment.items()})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class InstalledTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="resid-install-test-")
        cls.addClassCleanup(cls.holder.cleanup)
        folder = pathlib.Path(cls.holder.name)
        run("cmake", "--install", BUILD, "--prefix", folder / "first")
        # Moved after installing: nothing in it may know where it was put.
        cls.prefix = (folder / "first").rename(folder / "moved")
        cls.folder = folder

    def library_folder(self):
        found = list(self.prefix.rglob("libresid.so"))
        self.assertEqual(len(found), 1, found)
        return found[0].parent

    def pkg_config(self, *options):
        return run("pkg-config", *options, "resid", PKG_CONFIG_PATH=self.library_folder() / "pkgconfig").split()

    def read_a_model(self, program, **environment):
        done = subprocess.run([str(program), str(MODEL)], capture_output=True, text=True, check=False, timeout=100,
                              env=os.environ | {k: str(v) for k, v in environment.items()})
        if done.returncode == 3:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{MODEL.stat().st_size} bytes, equal", done.stdout)

    def test_a_c_program_builds_with_pkg_config_and_runs(self):
        program = self.folder / "by-pkg-config"
        run("cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", HERE / "installed_program.c", "-o", program,
            *self.pkg_config("--cflags", "--libs"))
        self.read_a_model(program, LD_LIBRARY_PATH=self.library_folder())

    def test_a_c_program_builds_with_find_package_and_runs(self):
        source = self.folder / "by-find-package"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PROJECT.format(source=HERE / "installed_program.c"))
        run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", source / "build")
        self.read_a_model(source / "build/user")

    def test_the_headers_stand_alone_in_c_and_in_cxx(self):
        include = self.prefix / "include"
        headers = sorted(include.glob("resid/*.h*"))
        self.assertTrue(headers)
        for header in headers:
            name = header.relative_to(include)
            for language, standard in (("c", "c11"), ("c++", "c++20")):
                if header.suffix == ".hpp" and language == "c":
                    continue
                unit = self.folder / f"alone.{'c' if language == 'c' else 'cpp'}"
                unit.write_text(f"#include <{name}>\nint main(void) {{ return 0; }}\n")
                run("cc", "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                    f"-I{include}", unit)

    def test_the_library_exports_its_own_names_only(self):
        names = [line.split()[-1].split("@")[0] for line in
                 run("nm", "-D", "--defined-only", self.library_folder() / "libresid.so").splitlines()]
        self.assertTrue(any(name.startswith("resid_") for name in names))
        self.assertEqual([n for n in names if not n.startswith("resid_") and not n.startswith("RESID_")], [])

    def test_the_program_starts_from_where_it_lies(self):
        run(self.prefix / "bin/residctl", "--version")


if __name__ == "__main__":
    unittest.main(verbosity=2)  # so that the reason of a skip is on the output
