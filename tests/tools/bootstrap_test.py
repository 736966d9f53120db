"""tools/bootstrap, with dpkg, apt and sudo replaced by fakes that write down how they were called."""
import re
import unittest

from fakes import ROOT, ScriptTest


def listed(*sets):
    lines = (ROOT / "tools/packages.txt").read_text().splitlines()
    pairs = [line.split() for line in lines if line and not line.startswith("#")]
    return [name for set_, name in pairs if set_ in sets]


class Bootstrap(ScriptTest):
    def setUp(self):
        super().setUp()
        self.calls = self.folder / "calls"
        self.missing = self.folder / "missing"
        self.missing.write_text("")
        self.fake("dpkg-query", f'missing=$(/bin/cat {self.missing})\n'
                                'while [ "$1" != -f ]; do shift; done; shift 2\n'
                                'for p; do case " $missing " in *" $p "*) echo "=not-installed $p." ;; *) echo "=installed $p." ;; esac; done')
        self.fake("npm", "exit 0")
        self.fake("id", "echo 0")
        self.fake_apt()

    def fake_apt(self, update="exit 0", install="exit 0"):
        self.fake("apt-get", f'echo "apt-get $DEBIAN_FRONTEND $*" >>{self.calls}\n'
                             f'case "$*" in *update*) {update} ;; *install*) {install} ;; esac')

    def called(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def test_does_nothing_when_all_is_installed(self):
        result = self.run_script("tools/bootstrap")
        self.assertEqual((result.returncode, result.stderr, self.called()), (0, "", []))

    def test_installs_what_is_missing_without_questions(self):
        self.missing.write_text("cmake libgtest-dev")
        self.assertEqual(self.run_script("tools/bootstrap").returncode, 0)
        update, install = self.called()
        self.assertIn("noninteractive", update)
        self.assertRegex(update, " update$")
        self.assertRegex(install, r"noninteractive .* install -y --no-install-recommends cmake libgtest-dev$")

    def test_the_demo_needs_no_test_packages(self):
        self.missing.write_text("libgtest-dev")
        self.assertEqual(self.run_script("tools/bootstrap", "--for", "demo").returncode, 0)
        self.assertEqual(self.called(), [])

    def test_extras_alone_start_no_installation(self):
        self.missing.write_text("ccache")
        self.assertEqual(self.run_script("tools/bootstrap").returncode, 0)
        self.assertEqual(self.called(), [])

    def test_an_npm_of_any_origin_will_do(self):
        self.missing.write_text("npm")
        self.assertEqual(self.run_script("tools/bootstrap").returncode, 0)
        self.assertEqual(self.called(), [])

    def test_list_names_the_missing_and_installs_nothing(self):
        self.missing.write_text("cmake git")
        result = self.run_script("tools/bootstrap", "--list")
        self.assertEqual((result.returncode, result.stdout.split(), self.called()), (1, ["cmake", "git"], []))

    def test_uses_sudo_when_not_root(self):
        self.missing.write_text("cmake")
        self.fake("id", "echo 1000")
        self.fake("sudo", f'echo sudo >>{self.calls}\nexec "$@"')
        self.assertEqual(self.run_script("tools/bootstrap").returncode, 0)
        self.assertEqual(self.called()[0::2], ["sudo", "sudo"])

    def test_neither_root_nor_sudo_names_the_command_to_run(self):
        self.missing.write_text("cmake")
        self.fake("id", "echo 1000")
        (self.fakes / "dirname").symlink_to("/usr/bin/dirname")
        result = self.run_script("tools/bootstrap", only_fakes=True)
        self.assert_failure_line(result, 3, "neither root nor sudo", "apt-get install cmake")

    def test_a_failed_update_does_not_stop_an_install_that_works(self):
        self.missing.write_text("cmake")
        self.fake_apt(update='echo "E: a third-party list"; exit 100')
        result = self.run_script("tools/bootstrap")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("E: a third-party list", result.stderr)

    def test_a_failed_install_shows_what_apt_said(self):
        self.missing.write_text("cmake")
        self.fake_apt(install='echo "E: no space left"; exit 100')
        result = self.run_script("tools/bootstrap")
        self.assert_failure_line(result, 1, "installing cmake", "apt-get failed")
        self.assertIn("E: no space left", result.stderr)

    def test_wrong_usage(self):
        self.assert_failure_line(self.run_script("tools/bootstrap", "--nope"), 2, "--nope")
        self.assert_failure_line(self.run_script("tools/bootstrap", "--for", "lunch"), 2, "--for lunch")

    def test_every_package_has_its_reason_in_the_docs(self):
        documented = re.findall(r"^\| `([a-z0-9+.-]+)` \|", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
        self.assertEqual(sorted(documented), sorted(listed("demo", "check", "extra")))


if __name__ == "__main__":
    unittest.main()
