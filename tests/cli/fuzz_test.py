"""lockstep fuzz: its report on correct and failing plans, the file of a failing one, and bad input.

python3 fuzz_test.py PROGRAM TRANSPORT...
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, TRANSPORTS = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2:]


# With this seed the plans of two ranks begin with one to which a NaN in rank 0's operation 1 matters.
FAULTY = ("--seed", 69, "--ranks", 2)


class Fuzz(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def fuzz(self, *words, status=0, before_path="."):
        path = f"{before_path}:{os.environ['PATH']}"
        done = subprocess.run([PROGRAM, "fuzz", *map(str, words)], cwd=self.path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": path})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def files(self):
        return sorted(file.name for file in self.path.iterdir())

    def test_right_plans(self):
        for transport in TRANSPORTS:
            with self.subTest(transport=transport):
                said = self.fuzz("--plans", 2, "--transport", transport, "--ranks", 4)
                found = re.search(rf"2 plans of seed 1 over {transport}: (\d+) comparisons, all equal", said)
                self.assertIsNotNone(found, said)
                self.assertGreater(int(found[1]), 100)
                self.assertRegex(said, r"(?m)^--micro-batches +[1-6] of 6 +\d+ of \d+$")
                self.assertEqual(self.files(), [])

    def test_only_tags(self):
        said = self.fuzz("--tags", "--plans", 40)
        found = re.search(r"40 plans of seed 1 without data: (\d+) tags checked, none wrong", said)
        self.assertIsNotNone(found, said)
        self.assertGreater(int(found[1]), 10000)
        without = re.search(r"(?m)^(\d+) of these plans have no tags", said)
        self.assertIn(int(without[1]), range(1, 20), said)
        self.assertIn("without messages", self.fuzz("--tags", "--transport", "openmpi", status=2))
        self.assertIn("no plan had anything to check", self.fuzz("--tags", "--plans", 1, "--ranks", 1, status=1))

    def test_the_same_seed_makes_the_same_comparisons(self):
        counts = {re.search(r"(\d+) comparisons", self.fuzz("--plans", 3, "--seed", seed))[1] for seed in (5, 5, 6)}
        self.assertEqual(len(counts), 2)

    def test_wrong_plan(self):
        # Some launchers sometimes end with a status of their own, so these hide that of refused cases.
        launchers = tempfile.TemporaryDirectory()
        self.addCleanup(launchers.cleanup)
        for name in TRANSPORTS:
            if launcher := shutil.which(f"mpirun.{name}"):
                hiding = pathlib.Path(launchers.name, f"mpirun.{name}")
                hiding.write_text(f'#!/bin/sh\n"{launcher}" "$@" || exit 1\n')
                hiding.chmod(0o755)
        # Open MPI takes a second to end each of the wrong runs that the search for a smaller plan makes, so here MPICH stands for both.
        for transport in [name for name in TRANSPORTS if name != "openmpi" or "mpich" not in TRANSPORTS]:
            with self.subTest(transport=transport):
                words = ["--fault", "rank=0,op=1,kind=nan", "--transport", transport]
                said = self.fuzz("--plans", 5, *FAULTY, *words, status=1, before_path=launchers.name)
                wrong = re.search(r"plan (\d+) of seed 69 failed: (.*) on \d+ rank", said)
                self.assertRegex(said, r"step \d: loss [0-9.]+, gradient norm -?nan")
                self.assertRegex(said, "smallest failing plan found: .* on 2 ranks")  # one rank refuses the fault
                name = f"fuzz-69-{wrong[1]}.json"
                self.assertEqual(self.files(), [name])
                self.assertIn(f"--replay ./{name}", said)
                case = json.loads((self.path / name).read_text())
                self.assertEqual((case["schema"], case["model"]["n_layer"]), ("lockstep.fuzz/1", 1))
                self.assertIn("is wrong", self.fuzz("--replay", name, *words, status=1))
                self.assertRegex(self.fuzz("--replay", name, "--transport", transport), r"^comparisons: \d+\n$")
                (self.path / name).unlink()

    def test_a_passing_run_keeps_the_files_of_failing_ones(self):
        for words in (["--tags"], []):
            self.fuzz("--plans", 3, *FAULTY, "--fault", "rank=0,op=1,kind=nan", "--no-shrink", status=1)
            kept = {name: (self.path / name).read_text() for name in self.files()}
            self.assertEqual(len(kept), 1)
            self.fuzz("--plans", 3, *FAULTY, *words)
            self.assertEqual({name: (self.path / name).read_text() for name in self.files()}, kept)
            # Nor does another failing one replace it.
            self.fuzz("--plans", 3, *FAULTY, "--fault", "rank=0,op=1,kind=nan", "--no-shrink", status=1)
            self.assertEqual(len(self.files()), 2)
            for name in self.files():
                (self.path / name).unlink()

    def test_error_of_a_plan(self):
        said = self.fuzz("--plans", 20, "--ranks", 2, "--fault", "rank=1,op=0,kind=throw", status=1)
        self.assertRegex(said, r"failed: .*\n  .*rank 1")
        self.assertEqual(len(self.files()), 1)

    def test_interrupted(self):
        run = subprocess.Popen([PROGRAM, "fuzz", "--minutes", "5"], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.kill)
        # The file of the plan that runs; between two plans there is none.
        end = time.monotonic() + 30
        while not (files := self.files()) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(len(files), 1)
        run.send_signal(signal.SIGINT)
        said = "".join(run.communicate(timeout=30))
        # Between two plans the signal itself ends the program. A shell says 130 for both.
        self.assertIn(run.returncode, (130, -signal.SIGINT), said)

    def test_bad_input(self):
        (self.path / "empty.json").write_text("")
        (self.path / "plan.json").write_text('{"schema": "lockstep.plan/1"}')
        for words, part in ((["--transport", "tcp"], "choose threads, openmpi or mpich"), (["--transport", "openmpi", "--ranks", 23], "--ranks 23"),
                            (["--minutes", 0], "--minutes 0"),
                            (["--minutes", "nan"], "--minutes"), (["--plans", -1], "--plans -1"), (["--ranks", -1], "--ranks -1"),
                            (["--jitter", -1], "--jitter"), (["--timeout", 0], "--timeout"), (["--fault", "rank=0"], "fault"),
                            (["--replay", "none.json"], "none.json"), (["--replay", "empty.json"], "empty.json"),
                            (["--replay", "plan.json"], "lockstep.fuzz/1"), (["--output", "no/folder"], "no/folder"),
                            (["--replay", "plan.json", "--seed", 3], "--seed"), (["surprise"], "surprise")):
            with self.subTest(words=words):
                self.assertIn(part, self.fuzz(*words, status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
