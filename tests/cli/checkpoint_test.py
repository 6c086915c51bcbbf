"""Training runs that are killed at random moments while they write checkpoints: an intact one is always found, and the run resumes
with the same bits. A file system that fails leaves the older ones.

python3 checkpoint_test.py PROGRAM SOURCE_FOLDER threads|openmpi|mpich

LOCKSTEP_KILLS sets the number of kills, LOCKSTEP_KILL_SEED their moments.
"""

import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import processes

PROGRAM, SOURCE, TRANSPORT = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]).absolute(), sys.argv[3]
GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TINY = ["--model", GOLDEN / "config.json", "--init", GOLDEN / "init.safetensors", "--data", GOLDEN / "tokens.bin", "--global-batch", "4",
        "--threads", "1"]
MPIRUN = processes.MPIRUN[TRANSPORT]
KILLS = int(os.environ.get("LOCKSTEP_KILLS", "8"))
SEED = int(os.environ.get("LOCKSTEP_KILL_SEED", "1"))
STEPS = 600
TECHNIQUES = [["ddp"], ["fsdp", "--checkpoint-async"], ["zero", "--stage", "2"], ["pipeline", "--checkpoint-async"]]


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def command(self, technique, *words):
        launcher = [*MPIRUN, "-np", "2"] if MPIRUN else []
        ranks = [] if MPIRUN else ["--ranks", "2"]
        return [str(word) for word in [*launcher, PROGRAM, "train", *technique, *TINY, *ranks, *words]]

    def run_training(self, technique, *words, status=0, **settings):
        done = subprocess.run(self.command(technique, *words), cwd=self.path, capture_output=True, text=True, timeout=120, **settings)
        self.assertEqual(processes.status_asked_for(done.returncode, done.stderr), status, done.stderr)
        return done.stderr

    def losses(self, name):
        return {step["step"]: step["loss"] for step in json.loads((self.path / name).read_text())["steps"]}

    def checkpoints(self):
        return sorted(path.name for path in (self.path / "saved").glob("step-*"))

    def kill(self, technique, moment):
        """Kills a run once it has written a new checkpoint and some time has passed. Returns whether it was still running."""
        words = ["--steps", STEPS, "--checkpoint", "saved", "--checkpoint-interval", "1", "--keep", "2"]
        before = self.checkpoints()
        if before:
            words += ["--resume", "saved"]
        process = subprocess.Popen(self.command(technique, *words), cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and self.checkpoints() == before and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(moment)
        ranks = processes.processes_in(self.path, "lockstep")
        try:
            os.kill(int(random.choice(ranks)), signal.SIGKILL)
            was_running = True
        except (IndexError, ProcessLookupError):  # it has ended
            was_running = False
        process.wait(timeout=60)
        self.assertEqual(processes.still_left(lambda: processes.processes_in(self.path), 30), [])
        return was_running

    def test_a_killed_training_goes_on(self):
        random.seed(SEED)
        killed = 0
        for technique in TECHNIQUES:
            shutil.rmtree(self.path / "saved", ignore_errors=True)
            for _ in range(max(1, KILLS // len(TECHNIQUES))):
                killed += self.kill(technique, random.uniform(0, 0.1))
                self.assertTrue(self.checkpoints(), technique)
                done = subprocess.run([PROGRAM, "checkpoint", "verify", "saved"], cwd=self.path, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            steps = int(self.checkpoints()[-1].split("-")[1]) + 2
            plain = [word for word in technique if word != "--checkpoint-async"]
            self.run_training(plain, "--steps", steps, "--resume", "saved", "--json", "resumed.json")
            self.run_training(plain, "--steps", steps, "--json", "whole.json")
            resumed, whole = self.losses("resumed.json"), self.losses("whole.json")
            self.assertEqual(resumed, {step: whole[step] for step in resumed}, technique)
            self.assertEqual(len(resumed), 2)
        self.assertGreaterEqual(killed, KILLS * 3 // 4)

    def test_a_second_run_is_refused(self):
        """All ranks of a job have one lock. Its ranks end together, and say why."""
        words = ["--steps", 1_000_000, "--checkpoint", "saved", "--checkpoint-interval", "1", "--keep", "2"]
        process = subprocess.Popen(self.command(["ddp"], *words), cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while not self.checkpoints() and time.monotonic() < deadline:
                time.sleep(0.01)
            said = self.run_training(["ddp"], *words, "--resume", "saved", status=2)
            owner = re.search(r"saved is being written by process (\d+) on", said)
            self.assertTrue(owner, said)
            self.assertIn(owner[1], processes.processes_in(self.path, "lockstep"))
            os.kill(int(owner[1]), signal.SIGKILL)
            process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(processes.still_left(lambda: processes.processes_in(self.path), 30), [])
        last = int(self.checkpoints()[-1].split("-")[1])
        self.run_training(["ddp"], "--steps", last + 1, "--checkpoint", "saved", "--resume", "saved")
        self.assertNotIn(".lock", os.listdir(self.path / "saved"))

    @unittest.skipUnless(TRANSPORT == "threads", "the limit is also one of MPI's shared memory")
    def test_a_failing_disk_leaves_the_older_ones(self):
        self.run_training(["ddp"], "--steps", "2", "--checkpoint", "saved", "--checkpoint-interval", "1")
        before = self.checkpoints()
        for mode in [], ["--checkpoint-async"]:
            said = self.run_training(["ddp", *mode], "--steps", "4", "--checkpoint", "saved", "--resume", "saved", status=2,
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
            self.assertIn("ulimit -f", said)
            self.assertRegex(said, r"rank-000[01]")
            self.assertEqual(self.checkpoints(), before)
            self.run_training(["ddp"], "--steps", "3", "--resume", "saved")

    def test_outputs_are_checked_before_training(self):
        (self.path / "file").write_text("")
        for folder in "file", "file/folder", "/proc/folder":
            said = self.run_training(["ddp"], "--steps", "1", "--checkpoint", folder, status=2)
            self.assertIn("cannot make the folder", said)
        said = self.run_training(["ddp"], "--steps", "1", "--keep", "2", status=2)
        self.assertIn("--checkpoint DIR", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
