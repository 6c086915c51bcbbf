"""lockstep demo: its table, its files, its exit status.

python3 demo_test.py PROGRAM
"""

import pathlib
import re
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
        return subprocess.run([PROGRAM, "demo", *words], cwd=self.path, capture_output=True, text=True, timeout=800)

    def test_every_technique_is_checked_and_reported_and_failures_are_named(self):
        done = self.run_demo("--steps", "2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for row in (["serial", "1"], ["ddp", "2"], ["ddp", "4"], ["pipeline", "2"], ["pipeline", "4"]):
            (line,) = [line.split() for line in done.stdout.splitlines() if line.split()[:2] == row]
            self.assertEqual(line[-1], "ok")
            self.assertLessEqual(float(line[-2]), 1e-10)
            equal, all_forms = line[-5], line[-3]
            self.assertEqual(equal, all_forms)
        page = (self.path / "out" / "report.html").read_text()
        for text in ("ddp 4 ranks", "pipeline gpipe 4 ranks", "pipeline zb-h1 4 ranks", "How a ring all-reduce works", "Bandwidth and scaling of collectives",
                     "Parameter server against ring", "Pipeline: bubble and memory", "Tensor and sequence parallelism", "Context parallelism",
                     "ring-attention 4 ranks", "3D parallelism", "Expert parallelism", "of experts&#x27; rows, the most"):
            self.assertIn(text, page)
        self.assertNotIn('class="finding wrong"', page)
        steps = [re.fullmatch(r"\[(\d+)/(\d+)\] \$ (.*?)  # (ok|skipped.*), .*", line) for line in done.stdout.splitlines() if line.startswith("[")]
        self.assertTrue(all(steps), done.stdout)
        done_numbers = {int(step[1]) for step in steps if step[4] == "ok"}
        # The last one, under mpirun, is skipped where that does not run.
        self.assertLessEqual(set(range(1, int(steps[0][2]))), done_numbers)
        commands = [step[3] for step in steps]
        repeated = subprocess.run([PROGRAM, *commands[0].split()[1:]], cwd=self.path, capture_output=True, timeout=60)
        self.assertEqual(repeated.returncode, 0)
        self.commands_that_fail_make_the_demo_fail({name.stem for name in (self.path / "out").glob("*.log")})

    def commands_that_fail_make_the_demo_fail(self, results):
        kept = {"serial_1", "check_serial_1", "ddp_2", "check_ddp_2", "report"}
        self.assertLess(kept, results)
        for name in results - kept:
            (self.path / "results" / f"{name}.json").mkdir(parents=True)
        done = self.run_demo("--steps", "2", "--output", "results")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for name in results - kept:
            self.assertRegex(done.stdout, rf"  # (FAILED|skipped, it does not run here): .*results/{re.escape(name)}\.log")
        self.assertIn("ddp            2", done.stdout)
        self.assertNotIn("ddp            4", done.stdout)
        self.assertTrue((self.path / "results" / "report.html").exists())

    def test_bad_input_is_refused(self):
        for words in (["--steps", "1"], ["--output", "/proc/none"], ["--nonsense"]):
            done = self.run_demo(*words)
            self.assertEqual(done.returncode, 2, words)
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
