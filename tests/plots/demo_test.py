"""lockstep demo: its table, its files, its exit status.

python3 demo_test.py PROGRAM
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1])


class Demo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def run_demo(self, *words):
        return subprocess.run([PROGRAM, "demo", *words], cwd=self.path, capture_output=True, text=True, timeout=200)

    def test_every_technique_is_checked_and_reported(self):
        done = self.run_demo("--steps", "4", "--output", "results")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for row in (["serial", "1"], ["ddp", "2"], ["ddp", "4"], ["pipeline", "2"], ["pipeline", "4"]):
            (line,) = [line.split() for line in done.stdout.splitlines() if line.split()[:2] == row]
            self.assertEqual(line[-1], "ok")
            self.assertLessEqual(float(line[-2]), 1e-10)
            equal, all_forms = line[-5], line[-3]
            self.assertEqual(equal, all_forms)
        page = (self.path / "results" / "report.html").read_text()
        for text in ("ddp 4 ranks", "pipeline 1f1b 4 ranks", "Bubble of pipelines", "Bandwidth of all_reduce", "Timeline", 'class="right"'):
            self.assertIn(text, page)
        self.assertNotIn('class="wrong"', page)
        commands = [line[2:] for line in done.stdout.splitlines() if line.startswith("$ lockstep")]
        self.assertGreaterEqual(len(commands), 11)
        repeated = subprocess.run([PROGRAM, *commands[0].split()[1:]], cwd=self.path, capture_output=True, timeout=60)
        self.assertEqual(repeated.returncode, 0)

    def test_a_command_that_fails_makes_the_demo_fail(self):
        (self.path / "out" / "check_ddp_4.json").mkdir(parents=True)
        done = self.run_demo("--steps", "2")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("out/check_ddp_4.log", done.stdout)
        self.assertIn("ddp            2", done.stdout)
        self.assertTrue((self.path / "out" / "report.html").exists())

    def test_bad_input_is_refused(self):
        for words in (["--steps", "1"], ["--output", "/proc/none"], ["--nonsense"]):
            done = self.run_demo(*words)
            self.assertEqual(done.returncode, 2, words)
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
