"""The launcher, with mocks of the tools it calls: the packages it installs, when it builds, and its messages.

python3 launcher_test.py SOURCE_FOLDER
"""

import contextlib
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(sys.argv[1])
TOOLS = ["awk", "bash", "cat", "chmod", "dirname", "env", "find", "flock", "grep", "id", "mkdir", "readlink", "sed",
         "sha256sum", "sleep", "sort", "tail", "uname", "wc"]

# All packages that the launcher names are installed, except those in the file `absent`.
DPKG_QUERY = """#!/bin/bash
sed -n '/packages=(/,/^)/s/^  "\\([^:]*\\):.*/\\1/p' '{checkout}/lockstep' |
  grep -vxFf {absent} | sed 's/$/ installed/'
"""
APT_GET = """#!/bin/bash
echo "apt-get $*" >>{calls}
[ "$1" = update ] || : >{absent}
"""
CMAKE = """#!/bin/bash
echo "cmake $*${LIBRARY_PATH:+ with LIBRARY_PATH}" >>{calls}
sleep 0.2
if [ -e {broken} ]; then
  printf 'earlier words\\nFAILED: x.cc.o\\nx.cc:1: error: planted\\n'
  exit 1
fi
if [ "$1" = --build ]; then
  mkdir -p build/$3/bin
  printf '[0/2] Re-checking globbed directories...\\n[1/2] Building\\n[2/2] Linking\\n'
  printf '#!/bin/bash\\necho "program in $PWD:" "$@"\\nexit 3\\n' >build/$3/bin/lockstep
  chmod +x build/$3/bin/lockstep
fi
"""
CTEST = """#!/bin/bash
echo "ctest $*" >>{calls}
echo "summary of $2"
[ ! -e {broken}-$2 ]
"""


class Launcher(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        top = pathlib.Path(self.folder.name).resolve()
        self.checkout = top / "a checkout"
        self.tools, self.elsewhere = top / "tools", top / "elsewhere"
        for folder in (self.checkout / "models", self.tools, self.elsewhere):
            folder.mkdir(parents=True)
        shutil.copy(SOURCE / "lockstep", self.checkout)
        (self.checkout / "models" / "gpt.cc").write_text("1\n")
        self.calls, self.absent, self.broken = top / "calls", top / "absent", top / "broken"
        self.calls.touch()
        self.absent.touch()
        for name in TOOLS:
            (self.tools / name).symlink_to(shutil.which(name))
        self.tool("dpkg-query", DPKG_QUERY)
        self.tool("apt-get", APT_GET)
        self.tool("sudo", '#!/bin/bash\nexec "$@"\n')
        self.tool("cmake", CMAKE)
        self.tool("ctest", CTEST)

    def tool(self, name, text):
        for key in ("calls", "absent", "broken", "checkout"):
            text = text.replace("{" + key + "}", str(getattr(self, key)))
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    def start(self, *words, stderr=subprocess.PIPE):
        return subprocess.Popen([self.checkout / "lockstep", *words], cwd=self.elsewhere, text=True,
                                env={"PATH": str(self.tools), "HOME": self.folder.name, "LIBRARY_PATH": "/stubs"},
                                stdout=subprocess.PIPE, stderr=stderr)

    def call(self, *words):
        process = self.start(*words)
        process.out, process.err = process.communicate(timeout=60)
        return process

    def calls_made(self):
        made = self.calls.read_text().splitlines()
        self.calls.write_text("")
        return made

    def test_builds_once_and_passes_everything_on(self):
        first = self.call("train", "a b", "--ranks", "2")
        self.assertEqual(first.returncode, 3, first.err)
        self.assertEqual(first.out, f"program in {self.elsewhere}: train a b --ranks 2\n")
        self.assertEqual(self.calls_made(), ["cmake --preset release --fresh", "cmake --build --preset release --target program"])
        begun = time.monotonic()
        second = self.call("train")
        self.assertLess(time.monotonic() - begun, 1)
        self.assertEqual((second.out, second.err), (f"program in {self.elsewhere}: train\n", ""))
        self.assertEqual(self.calls_made(), [])

    def test_builds_again_when_a_source_changes_appears_or_goes(self):
        self.call("train")
        for change in (lambda: (self.checkout / "models" / "gpt.cc").write_text("22\n"),
                       lambda: (self.checkout / "models" / "new.h").touch(),
                       lambda: (self.checkout / "models" / "new.h").unlink(),
                       lambda: (self.checkout / "build/release/bin/lockstep").unlink()):
            self.calls_made()
            change()
            self.call("train")
            self.assertIn("cmake --build --preset release --target program", self.calls_made())
        for name in ("results.json", "build/x.h", "out/x.h", ".venv/x.py"):
            (self.checkout / name).parent.mkdir(exist_ok=True)
            (self.checkout / name).touch()
        self.call("train")
        self.assertEqual(self.calls_made(), [])

    def test_installs_what_is_missing(self):
        self.absent.write_text("libfmt-dev\nninja-build\n")
        done = self.call("train")
        self.assertEqual(done.returncode, 3, done.err)
        self.assertRegex(done.err, r"missing packages:\n  ninja-build: .+\n  libfmt-dev: .+\ninstall 2 packages \.\.\. ")
        self.assertEqual(self.calls_made()[0], "apt-get install --yes --no-install-recommends ninja-build libfmt-dev")

    def test_only_tests_need_the_tests_and_their_packages(self):
        self.absent.write_text("libgtest-dev\nnodejs\n")
        self.call("train")
        self.assertEqual(self.calls_made(), ["cmake --preset release --fresh", "cmake --build --preset release --target program"])
        self.assertEqual(self.call("test", "--quick").returncode, 0)
        self.assertEqual(self.calls_made(), [
            "apt-get install --yes --no-install-recommends libgtest-dev nodejs libsimgrid-dev", "cmake --preset release --fresh",
            "cmake --build --preset release --target all", "ctest --preset release"])
        self.call("train")
        self.assertEqual(self.calls_made(), [])

    def test_a_terminal_shows_how_far_the_build_is(self):
        terminal, end = pty.openpty()
        process = self.start("train", stderr=end)
        process.communicate(timeout=60)
        os.close(end)
        shown = b""
        # A read returns a part of it. With nobody at the other end, the last one is an error.
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 10000):
                shown += part
        shown = shown.decode()
        self.assertRegex(shown, r"build release \.\.\. \[1/2\], about \d+ s left \.\.\. ")
        self.assertIn("build release ... [2/2], about 0 s left ... ", shown)
        os.close(terminal)

    def test_no_install_only_says_what_is_missing(self):
        self.absent.write_text("g++\n")
        done = self.call("--no-install", "train")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.err, r"  g\+\+: .+\n.*apt-get install --no-install-recommends g\+\+\n$")
        self.assertEqual(self.calls_made(), [])
        self.absent.write_text("")
        self.assertEqual(self.call("--no-install", "train").returncode, 3)

    def test_other_systems_get_the_list(self):
        (self.tools / "apt-get").unlink()
        done = self.call("train")
        self.assertEqual(done.returncode, 2)
        self.assertIn("  g++: the compiler\n", done.err)
        self.assertEqual(self.calls_made(), [])

    def test_a_failed_build_shows_its_first_error_and_its_log(self):
        self.broken.touch()
        done = self.call("train")
        self.assertEqual((done.returncode, done.out), (1, ""))
        self.assertIn("error: planted", done.err)
        self.assertNotIn("earlier words", done.err)
        log = self.checkout / "build" / "setup.log"
        self.assertIn(str(log), done.err)
        self.assertIn("earlier words", log.read_text())
        self.broken.unlink()
        self.assertEqual(self.call("train").returncode, 3)

    def test_two_first_calls_build_once(self):
        both = [self.start("train"), self.start("train")]
        for process in both:
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (3, f"program in {self.elsewhere}: train\n"), err)
        self.assertEqual(len(self.calls_made()), 2)

    def test_help_builds_nothing(self):
        done = self.call("--help")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.out.startswith("usage: ./lockstep"), done.out)
        self.assertEqual(self.calls_made(), [])
        self.call("train")
        self.assertIn(": --help\n", self.call().out)

    def test_help_and_errors_of_test_build_nothing(self):
        for words in (["--help"], ["-h"], ["--quick", "--help"], ["-R", "gpt", "-h"]):
            done = self.call("test", *words)
            self.assertEqual((done.returncode, done.err), (0, ""), words)
            self.assertTrue(done.out.startswith("usage:\n  ./lockstep test [ctest options]"), done.out)
        for words, message in ((["--bogus"], "unknown option '--bogus'"), (["--quick", "-x"], "unknown option '-x'"),
                               (["--preset", "dev"], "unknown option '--preset'"), (["gpt"], "'gpt' belongs to no option"),
                               (["--quick", "-R"], "-R needs a value"), (["--quick", "--gpu"], "--quick and --gpu; choose one")):
            done = self.call("test", *words)
            self.assertEqual((done.returncode, done.out), (2, ""), words)
            self.assertIn(f"lockstep: test: {message}", done.err)
            self.assertIn("  ./lockstep test --quick ", done.err)
        self.assertEqual(self.calls_made(), [])

    def test_options_of_ctest_pass(self):
        words = ["-R", "-gpt", "-j4", "--output-on-failure", "--repeat", "until-fail:2", "--no-tests=error", "-LE", "gpu", "-N"]
        done = self.call("test", *words, "--quick")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(self.calls_made()[-1], f"ctest --preset release {' '.join(words)}")

    def test_runs_the_tests_of_each_build(self):
        done = self.call("test", "-R", "gpt")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertTrue(done.out.endswith("summary of release\n"))
        self.assertEqual([call for call in self.calls_made() if call.startswith("ctest")],
                         [f"ctest --preset {preset} -R gpt" for preset in ("tsan", "dev", "release")])
        self.call("test", "--quick")
        self.assertEqual(self.calls_made(), ["ctest --preset release"])
        self.call("test", "--campaign")
        self.assertEqual(self.calls_made(), ["ctest --preset release --verbose --tests-regex ^(campaign_|hostile_plots|install|labs/)"])
        done = self.call("test", "--gpu", "-R", "device")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(self.calls_made(), ["cmake --preset cuda --fresh", "cmake --build --preset cuda --target all",
                                             "ctest --preset cuda --label-regex ^gpu$ -R device"])
        pathlib.Path(f"{self.broken}-dev").touch()
        done = self.call("test")
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(done.out.endswith("summary of dev\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
