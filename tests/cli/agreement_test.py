"""Processes that disagree, refuse their input or never start: the others are told, by name, and nothing trains or waits.

python3 agreement_test.py PROGRAM SOURCE_FOLDER openmpi|mpich
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import processes

PROGRAM, SOURCE, LIBRARY = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
MPIRUN = processes.MPIRUN[LIBRARY]
GOLDEN = SOURCE / "tests" / "golden" / "tiny"
WHOLE = os.environ.get("LOCKSTEP_CAMPAIGN") == "whole"
TRAIN = ["train", "ddp", "--global-batch", "4", "--steps", "2", "--timeout", "10"]

# The common words of both ranks; what rank 1 adds; and what the error must name.
DISAGREEMENTS = [
    (TRAIN, ["--lr", "0.003"], "--lr is 0.001 on rank 0 and 0.003 on rank 1"),
    (TRAIN, ["--seed", "2"], "--seed is 1 on rank 0 and 2 on rank 1"),
    (TRAIN, ["--grad-clip", "0"], "--grad-clip"),
    (TRAIN, ["--weight-decay", "0"], "--weight-decay"),
    (TRAIN, ["--beta1", "0.8"], "--beta1"),
    (TRAIN, ["--beta2", "0.999"], "--beta2"),
    (TRAIN, ["--eps", "1e-6"], "--eps"),
    (TRAIN, ["--warmup-steps", "1"], "--warmup-steps"),
    (TRAIN, ["--min-lr", "0"], "--min-lr"),
    (TRAIN, ["--label-smoothing", "0.1"], "--label-smoothing"),
    (TRAIN, ["--dropout", "0.1"], "--dropout"),
    (TRAIN, ["--order", "sequential"], "--order"),
    (TRAIN, ["--global-batch", "8"], "--global-batch"),
    (TRAIN, ["--micro-batches", "2"], "--micro-batches"),
    (TRAIN, ["--sequence-length", "16"], "--sequence-length"),
    (TRAIN, ["--documents"], "--documents"),
    (TRAIN, ["--dtype", "f64"], "--dtype"),
    (TRAIN, ["--steps", "3"], "--steps is 2 on rank 0 and 3 on rank 1"),
    (TRAIN, ["--validation-fraction", "0.1"], "--validation-fraction"),
    (TRAIN, ["--recompute", "full"], "--recompute"),
    (TRAIN, ["--threads", "1"], "--threads"),
    (TRAIN, ["--algorithm", "halving_doubling"], "--algorithm"),
    (TRAIN, ["--reduce-dtype", "f64"], "--reduce-dtype"),
    (TRAIN, ["--no-overlap"], "--overlap is true on rank 0 and false on rank 1"),
    (TRAIN, ["--bucket-bytes", "1000000"], "--bucket-bytes"),
    (TRAIN, ["--save", "w.safetensors"], "--save"),
    (TRAIN, ["--sample", "3"], "--sample"),
    (TRAIN, ["--timeout", "9"], "--timeout is 10 on rank 0 and 9 on rank 1"),
    (TRAIN, ["--checkpoint", "saved"], "--checkpoint"),
    (TRAIN, ["--model", "small"], "of --model is"),
    (TRAIN + ["--model", "one.json"], ["--model", "epsilon.json"],
     "layer_norm_epsilon of --model is 1e-05 on rank 0 and 1e-06 on rank 1"),
    (TRAIN + ["--data", "text"], ["--data", "other_text"], "--data is a file of 40000 bytes"),
    (TRAIN + ["--model", "one.json", "--data", "tokens.bin", "--init", "one.safetensors"], ["--init", "other.safetensors"],
     "--init is a file of"),
    (["train", "zero", *TRAIN[2:], "--stage", "1"], ["--stage", "2"], "--stage is 1 on rank 0 and 2 on rank 1"),
    (["train", "fsdp", *TRAIN[2:]], ["--prefetch", "none"], "--prefetch"),
    (["train", "ps", *TRAIN[2:], "--colocated"], ["--mode", "asp"], "--mode"),
    (["train", "pipeline", *TRAIN[2:], "--micro-batches", "4"], ["--schedule", "gpipe"], "--schedule"),
    (["bench", "all_reduce", "-b", "4", "-e", "64"], ["-e", "128"], "--maxbytes is 64 on rank 0 and 128 on rank 1"),
    (["bench", "all_reduce", "-b", "4", "-e", "64"], ["-n", "3"], "--iters"),
    (["bench", "all_reduce", "-b", "4", "-e", "64"], ["--algorithm", "ring"], "--algorithm"),
    (["bench", "ps", "--servers", "colocated", "-b", "4", "-e", "64"], ["-d", "f64"], "--datatype"),
]
# Whole commands of both ranks.
OTHER_COMMANDS = [
    (TRAIN, ["train", "fsdp", *TRAIN[2:]], "the command is train ddp on rank 0 and train fsdp on rank 1"),
    (["bench", "all_reduce", "-e", "64"], ["bench", "all_gather", "-e", "64"],
     "the command is bench all_reduce on rank 0 and bench all_gather on rank 1"),
    (TRAIN, ["bench", "all_reduce", "-e", "64"], "the command is train ddp on rank 0 and bench all_reduce on rank 1"),
]
ENVIRONMENTS = [("OPENBLAS_CORETYPE", "Prescott"), ("ONEDNN_MAX_CPU_ISA", "SSE41"), ("OMP_NUM_THREADS", "1"),
                ("GLIBC_TUNABLES", "glibc.cpu.x86_ibt=on")]
# Nobody who starts the tests decides which of them is set.
UNSET = {name: value for name, value in os.environ.items() if name not in dict(ENVIRONMENTS)}
# Where one process may write what all read, or say the same in other words.
SAME = [["--lr", "1e-3"], ["--json", "other.json"], ["--flight", "other_flight.json"], ["--data", "same_text"]]


class Agreement(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name).resolve()
        text = b"Some text to learn. " * 2000
        (self.path / "text").write_bytes(text)
        (self.path / "same_text").write_bytes(text)
        (self.path / "other_text").write_bytes(text[:20000] + b"s" + text[20001:])
        config = json.loads((GOLDEN / "config.json").read_text())
        for name, epsilon in (("one", 1e-5), ("epsilon", 1e-6)):
            (self.path / f"{name}.json").write_text(json.dumps({**config, "layer_norm_epsilon": epsilon}))
        weights = (GOLDEN / "init.safetensors").read_bytes()
        (self.path / "one.safetensors").write_bytes(weights)
        (self.path / "other.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
        shutil.copy(GOLDEN / "tokens.bin", self.path)

    def run_apart(self, first, second, environment=(), program=PROGRAM):
        """One process of each command, under one mpirun."""
        start = time.monotonic()
        done = subprocess.run([*MPIRUN, "-np", "1", PROGRAM, *first, ":", "-np", "1", "env", *environment, program, *second],
                              cwd=self.path, env=UNSET, capture_output=True, text=True, errors="replace", timeout=90)
        return done.returncode, done.stderr + done.stdout, time.monotonic() - start

    def refused(self, first, second, named, environment=()):
        status, said, _ = self.run_apart(first, second, environment)
        self.assertEqual(status, 2, said)
        self.assertIn(named, said)
        self.assertEqual(said.count("lockstep: "), 1, said)  # one rank speaks for all
        self.assertNotIn("step 0", said)

    def test_disagreements(self):
        # Each library takes every third; the campaign all.
        first = {"openmpi": 0, "mpich": 1}[LIBRARY]
        cases = [(words, words + more, named) for words, more, named in DISAGREEMENTS] + OTHER_COMMANDS
        cases = cases if WHOLE else cases[first::3]
        self.assertGreater(len(cases), 12)
        for result in processes.at_once(2, lambda case: (case, self.run_apart(*case[:2])), cases):
            (first_words, second_words, named), (status, said, _) = result
            with self.subTest(words=second_words):
                self.assertEqual(status, 2, said)
                self.assertIn(named, said)
                self.assertEqual(said.count("lockstep: "), 1, said)
        self.assertFalse((self.path / "saved").exists())
        self.assertFalse((self.path / "w.safetensors").exists())

    def test_environment(self):
        for variable, value in ENVIRONMENTS if WHOLE else ENVIRONMENTS[:1]:
            with self.subTest(variable=variable):
                self.refused(TRAIN, TRAIN, f"{variable} is not set on rank 0 and {value} on rank 1", [f"{variable}={value}"])

    def test_what_is_the_same_may_be_said_differently(self):
        common = [*TRAIN, "--data", "text"]
        for more in SAME if WHOLE else SAME[:1] + SAME[-1:]:
            with self.subTest(more=more):
                status, said, _ = self.run_apart(common, common + more)
                self.assertEqual(status, 0, said)

    def test_resume_of_another_checkpoint(self):
        for name in ("a", "b"):
            done = subprocess.run([PROGRAM, "train", "ddp", "--ranks", "2", "--global-batch", "4", "--steps", "1", "--seed",
                                   str(len(name) + ord(name)), "--checkpoint", name], cwd=self.path, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.refused([*TRAIN, "--resume", "a"], [*TRAIN, "--resume", "b"], "--resume is")

    def test_rank_that_refuses_its_input(self):
        for more, named in ((["--bogus"], "--bogus"), (["--lr", "fast"], "--lr"), (["--model", "missing.json"], "missing.json"),
                            (["--ranks", "4"], "--ranks 4, and")):
            with self.subTest(more=more):
                status, said, seconds = self.run_apart(TRAIN, TRAIN + more)
                self.assertEqual(status, 2, said)
                self.assertIn("rank 1 refuses its input: ", said)
                self.assertIn(named, said)
                self.assertEqual(said.count("lockstep: "), 1, said)
                self.assertLess(seconds, 20)

    def test_ranks_that_all_refuse_say_so_once(self):
        status, said, _ = self.run_apart([*TRAIN, "--bogus"], [*TRAIN, "--bogus"])
        self.assertEqual(status, 2, said)
        self.assertEqual(said.count("lockstep: "), 1, said)
        self.assertNotIn("refuses its input", said)

    def test_other_numbers_of_ranks(self):
        for words in (["train", "ddp", "--ranks", "3"], ["bench", "all_reduce", "-e", "64", "-t", "4"],
                      ["bench", "all_reduce", "-e", "64", "-g", "3"], ["bench", "all_reduce", "-e", "64", "--ranks", "1"]):
            with self.subTest(words=words):
                status, said, _ = self.run_apart(words, words)
                self.assertEqual(status, 2, said)
                self.assertIn("started 2 processes", said)
        status, said, _ = self.run_apart(*[["bench", "all_reduce", "-e", "64", "-n", "1", "-g", "1", "--ranks", "2"]] * 2)
        self.assertEqual(status, 2, said)
        status, said, _ = self.run_apart(*[["bench", "all_reduce", "-e", "64", "-n", "1", "-g", "1"]] * 2)
        self.assertEqual(status, 0, said)

    def test_rank_that_is_stopped_before_it_joins(self):
        started = subprocess.Popen([*MPIRUN, "-np", "1", PROGRAM, *TRAIN, "--timeout", "1", ":", "-np", "1", "sh", "-c",
                                    'kill -STOP $$; exec "$0" "$@"', PROGRAM, *TRAIN, "--timeout", "1"],
                                   cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            said, _ = started.communicate(timeout=40)
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
        self.assertEqual(processes.status_asked_for(started.returncode, said), 4, said)
        self.assertIn("not all ranks have started MPI", said)
        self.assertIn("without rank 1", said)

    def test_job_that_is_suspended_and_continued(self):
        started = subprocess.Popen([*MPIRUN, "-np", "3", PROGRAM, "train", "ddp", "--global-batch", "3", "--steps", "1000000",
                                    "--timeout", "1"], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ranks = []

        def signal_ranks(number):
            for rank in ranks:
                os.kill(int(rank), number)

        try:
            deadline = time.monotonic() + 30
            while len(ranks) < 3 and time.monotonic() < deadline:
                time.sleep(0.2)
                ranks = processes.processes_in(self.path, "/lockstep")
            time.sleep(2)  # they join, and train
            signal_ranks(signal.SIGSTOP)
            time.sleep(3)
            signal_ranks(signal.SIGCONT)
            time.sleep(1.5)
            self.assertIsNone(started.poll(), "it has ended")
            started.send_signal(signal.SIGTERM)
            said, _ = started.communicate(timeout=40)
        finally:
            if started.poll() is None:
                started.kill()
        self.assertIn("[interrupted] ", said)
        self.assertNotIn("timed out", said)
        self.assertEqual(len(ranks), 3)

    def test_rank_without_memory(self):
        big = ["train", "ddp", "--model", "small", "--global-batch", "8", "--steps", "1", "--timeout", "5"]
        status, said, _ = self.run_apart(big, ["-c", 'ulimit -v 700000; exec "$0" "$@"', PROGRAM, *big], program="bash")
        self.assertEqual(processes.status_asked_for(status, said), 2, said)
        self.assertIn("rank 1 refuses its input: this training needs about 335 MiB of memory, and ", said)

    def tearDown(self):
        self.assertEqual(processes.still_left(lambda: processes.processes_in(self.path), 10), [], "processes are left over")


if __name__ == "__main__":
    sys.exit(not processes.all_pass(1, unittest.defaultTestLoader.loadTestsFromTestCase(Agreement)))
