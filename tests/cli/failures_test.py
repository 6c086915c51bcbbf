"""Training runs that fail: the exit status, the rank that is named, the time until then, and no leftovers.

python3 failures_test.py PROGRAM SOURCE_FOLDER threads|openmpi|mpich
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import processes

PROGRAM, SOURCE, TRANSPORT = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]).absolute(), sys.argv[3]
GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TINY = ["--model", GOLDEN / "config.json", "--init", GOLDEN / "init.safetensors", "--data", GOLDEN / "tokens.bin", "--order", "sequential",
        "--global-batch", "4"]
MPIRUN = processes.MPIRUN[TRANSPORT]
TIMEOUT_S = 2
KILLED_BY_MPIRUN = processes.KILLED_BY_MPIRUN[TRANSPORT]


def command(ranks, technique, *words):
    start = ["--ranks", str(ranks)] if TRANSPORT == "threads" and technique != "serial" else []
    launcher = [*MPIRUN, "-np", str(ranks)] if MPIRUN else []
    return [*launcher, PROGRAM, "train", technique, *words, *start, "--timeout", str(TIMEOUT_S)]


# The operations of a step that are skipped, after the half of a run. An MPI run takes seconds, so the two libraries share them.
SKIPPED = {"threads": range(4), "openmpi": range(2), "mpich": range(2, 4)}
SMALL = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm"]


class Failures(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        self.segments = processes.segments()

    def run_training(self, ranks, technique, *words):
        # Output goes to files: a process that outlives mpirun would keep a pipe open.
        start = time.monotonic()
        with open(self.path / "said", "w") as said:
            status = subprocess.run(command(ranks, technique, *words), cwd=self.path, stdout=said, stderr=said, timeout=90).returncode
        return status, (self.path / "said").read_text(), time.monotonic() - start

    def fails(self, status, part, ranks, technique, *words):
        got, said, seconds = self.run_training(ranks, technique, *words)
        self.assertIn(processes.status_asked_for(got, said), [status, *KILLED_BY_MPIRUN], said)
        self.assertRegex(said, part)
        self.assertLess(seconds, TIMEOUT_S + 8, said)
        self.nothing_is_left()
        return said

    def nothing_is_left(self):
        self.assertEqual(processes.still_left(lambda: processes.processes_in(self.path), 10), [], "processes are left over")
        self.assertEqual(processes.segments_left(self.segments, 10), set(), "shared memory is left over")
        self.assertFalse(list(self.path.glob("*tmp*")), "files are left over")

    def operations(self, ranks, rank, technique, *words):
        """How many operations a rank makes in a run: a fault after them is refused with the number."""
        said = self.fails(2, "has made only", ranks, technique, *words, "--fault", f"rank={rank},op=100000,kind=delay")
        return int(re.search(r"has made only (\d+) operations", said).group(1))

    def poisoned_weights(self):
        """The golden weights with one NaN."""
        content = bytearray((GOLDEN / "init.safetensors").read_bytes())
        header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
        entry = header["wpe.weight"]
        size = {"F32": 4, "F64": 8}[entry["dtype"]]
        begin = 8 + int.from_bytes(content[:8], "little") + entry["data_offsets"][0]
        content[begin:begin + size] = b"\xff" * size
        (self.path / "nan.safetensors").write_bytes(content)
        return [*TINY[:2], "--init", "nan.safetensors", *TINY[4:]]


class OnThreads(Failures):
    def test_nan_is_no_success(self):
        for scaling in ("torch", "megatron", "deepspeed"):
            with self.subTest(scaling=scaling):
                self.fails(1, r"step 0: loss -?nan", 1, "serial", *self.poisoned_weights(), "--steps", "2", "--dtype", "f16",
                           "--loss-scaling", scaling)
        self.fails(1, r"step \d+: loss", 1, "serial", *TINY, "--steps", "5", "--lr", "1e9", "--dtype", "f16")

    def test_validation_that_is_no_number(self):
        words = [*TINY, "--steps", "1", "--lr", "1e200", "--dtype", "f64", "--validation-fraction", "0.5", "--save", "w.safetensors"]
        for ranks, technique in ((1, "serial"), (2, "ddp"), (2, "ps"), (2, "pipeline"), (2, "tp"), (2, "sp")):
            with self.subTest(technique=technique):
                self.fails(1, r"validation after 1 steps: loss", ranks, technique, *words)
                self.assertFalse((self.path / "w.safetensors").exists())

    def test_weights_that_are_no_numbers_are_not_saved(self):
        self.fails(1, "not all finite", 1, "serial", *TINY, "--steps", "1", "--lr", "1e39", "--save", "w.safetensors")
        self.assertFalse((self.path / "w.safetensors").exists())

    def test_skipped_steps_are_no_failure(self):
        for technique, ranks, words in (("ps", 3, []), ("ps", 4, ["--servers", "2"]), ("ps", 2, ["--colocated"]), ("zero", 2, [])):
            with self.subTest(technique=technique, words=words):
                self.fails(0, "3 of 3 steps skipped", ranks, technique, *TINY, *words, "--steps", "3", "--dtype", "f16", "--loss-scaling",
                           "megatron")
                # Only the last step is skipped: the traffic that is compared with the closed form is that of the step before.
                words = [*words, "--dtype", "f16", "--loss-scaling", "torch", "--steps", "2"]
                made = self.operations(ranks, 1, technique, *TINY, *words)
                said = [self.run_training(ranks, technique, *TINY, *words, "--fault", f"rank=1,op={operation},kind=nan")[:2]
                        for operation in range(made // 2, made - 2)]
                self.assertEqual([text for status, text in said if "DIFFERS" in text], [])
                self.assertTrue(any("1 of 2 steps skipped" in text for status, text in said), said)

    def test_planted_nan(self):
        words = ["--steps", "3", "--dtype", "f16"]
        self.fails(0, "1 of 3 steps skipped", 2, "ddp", *words, "--fault", "rank=1,op=6,kind=nan")
        # The flag of an overflow is the largest of all ranks' flags, and no number is larger than a NaN.
        self.fails(0, "the planted NaN had no effect", 2, "ddp", *words, "--fault", "rank=1,op=8,kind=nan")

    def test_too_few_addresses(self):
        limited = ["prlimit", f"--as={150 << 20}", *command(2, "ddp", *TINY, "--steps", "1")]
        done = subprocess.run(limited, cwd=self.path, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("ulimit -v", done.stderr)


class OnEveryTransport(Failures):
    def skipped_message(self, ranks, technique, *words):
        """The rank that skips a message is blamed. After these operations the ranks exchange messages in every step."""
        made = self.operations(ranks, 0, technique, *TINY, *words, "--steps", "4")
        for operation in SKIPPED[TRANSPORT]:
            operation += made // 2
            with self.subTest(operation=operation):
                said = self.fails_somehow(ranks, technique, *TINY, *words, "--steps", "4", "--fault", f"rank=0,op={operation},kind=skip")
                first = next(line for line in said.splitlines() if line.startswith("lockstep: "))
                self.assertRegex(first, r"rank 0 (has skipped|calls|keeps|never)|this rank|disagree|wait for each other")

    def test_skipped_message_of_a_pipeline(self):
        self.skipped_message(2, "pipeline", "--micro-batches", "4")

    def test_skipped_message_of_a_parameter_server(self):
        self.skipped_message(3, "ps")

    def test_skipped_message_of_ring_attention(self):
        self.skipped_message(2, "ring-attention")

    def test_skipped_message_of_ulysses(self):
        self.skipped_message(2, "ulysses")

    def test_skipped_message_of_sequence_parallelism(self):
        self.skipped_message(2, "sp", "--tp-overlap")

    def fails_somehow(self, ranks, technique, *words):
        status, said, _ = self.run_training(ranks, technique, *words)
        self.assertIn(processes.status_asked_for(status, said), [1, 4, *KILLED_BY_MPIRUN], said)
        self.nothing_is_left()
        return said

    def test_interrupted(self):
        for number, name in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")):
            with self.subTest(signal=name):
                with open(self.path / "said", "w") as said:
                    words = command(2, "ddp", "--steps", "100000", "--json", "r.json")
                    run = subprocess.Popen(words, cwd=self.path, stdout=said, stderr=said)
                    time.sleep(3)
                    run.send_signal(number)
                    status = run.wait(timeout=30)
                text = (self.path / "said").read_text()
                expected = [130] if TRANSPORT == "threads" else [130, 1, 128 + number, -number, number, *KILLED_BY_MPIRUN]
                # MPICH's launcher kills the ranks before they have reported, and may then end with 0.
                self.assertIn(status, [*expected, 0] if TRANSPORT == "mpich" else expected, text)
                self.nothing_is_left()
                if TRANSPORT != "mpich":
                    self.assertRegex(text, r"\[interrupted\]( after \d+ of 100000 steps:)? SIG(INT|TERM) (while .*all_reduce|before the first operation)")
                    flights = list((self.path / "out").glob("flight*.json"))
                    self.assertGreater(len(flights), 0, text)
                    for flight in flights:
                        self.assertEqual(json.loads(flight.read_text())["error"]["kind"], "interrupted")
                self.assertFalse((self.path / "r.json").exists())


class OnProcesses(Failures):
    def stopped_in_any_operation(self, technique, rank):
        made = self.operations(3, rank, technique, *TINY, "--steps", "2")
        for operation in (made // 2, made - 1):
            with self.subTest(operation=operation):
                self.fails(4, f"rank {rank} keeps the others waiting", 3, technique, *TINY, "--steps", "2", "--fault",
                           f"rank={rank},op={operation},kind=stop")

    def test_first_rank_of_ddp_is_stopped(self):
        self.stopped_in_any_operation("ddp", 0)

    def test_last_rank_of_ddp_is_stopped(self):
        self.stopped_in_any_operation("ddp", 2)

    def test_first_rank_of_ps_is_stopped(self):
        self.stopped_in_any_operation("ps", 0)

    def test_last_rank_of_ps_is_stopped(self):
        self.stopped_in_any_operation("ps", 2)

    def stopped_by_its_user(self, victim):
        """In the middle of an operation: each rank waits for its neighbour in a ring, also that one."""
        with open(self.path / "said", "w") as said:
            words = command(3, "ddp", "--steps", "100000", "--global-batch", "3")
            run = subprocess.Popen(words, cwd=self.path, stdout=said, stderr=said)
            try:
                process = int(self.process_of_rank(victim))
                time.sleep(2)
                os.kill(process, signal.SIGSTOP)
                status = run.wait(timeout=60)
            finally:
                run.kill()
        text = (self.path / "said").read_text()
        self.assertIn(processes.status_asked_for(status, text), [4, *KILLED_BY_MPIRUN], text)
        self.assertIn(f"rank {victim} keeps the others waiting", text)
        self.nothing_is_left()

    def test_first_rank_is_stopped_by_its_user(self):
        self.stopped_by_its_user(0)

    def test_last_rank_is_stopped_by_its_user(self):
        self.stopped_by_its_user(2)

    def process_of_rank(self, rank):
        variable = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}[TRANSPORT]
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for process in processes.processes_in(self.path):
                try:
                    environment = (pathlib.Path("/proc") / process / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue  # it has just ended
                if f"{variable}={rank}".encode() in environment:
                    return process
            time.sleep(0.1)
        return self.fail(f"rank {rank} does not run")

    def test_skipped_last_call(self):
        made = self.operations(3, 0, "ddp", *TINY, "--steps", "2", "--trace", "t.json")
        self.fails(4, r"timed out: rank 0 never entered gather/text", 3, "ddp", *TINY, "--steps", "2", "--trace", "t.json", "--fault",
                   f"rank=0,op={made - 1},kind=skip")
        self.assertFalse((self.path / "t.json").exists())
        self.assertTrue((self.path / "t-1.json").exists())

    def test_rank_that_calls_exit_is_lost(self):
        for ranks in (2, 3):
            for kind in ("exit", "leave"):
                with self.subTest(ranks=ranks, kind=kind):
                    self.fails(4, r"rank 1 failed: \[lost rank\] called exit\(\)", ranks, "ddp", *TINY, "--steps", "8", "--fault",
                               f"rank=1,op=3,kind={kind}")

    # MPICH ends the program itself, and says so.
    @unittest.skipUnless(TRANSPORT == "openmpi" and subprocess.run(["unshare", "-m", *SMALL], capture_output=True).returncode == 0,
                         "needs Open MPI, and the right to mount")
    def test_small_shared_memory(self):
        def run(limit):
            small = f"{' '.join(SMALL)} && {limit} " + " ".join(map(str, command(2, "ddp", *TINY, "--steps", "1")))
            return subprocess.run(["unshare", "-m", "sh", "-c", small], cwd=self.path, capture_output=True, text=True, timeout=60)

        done = run("")
        self.assertEqual(done.returncode, 0, done.stderr)
        # Too few addresses for memory that the ranks map of each other, so they ask MPI for it.
        total_kib = re.search(r"MemTotal: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]
        done = run(f"ulimit -v {total_kib} &&")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, r"MPI cannot share memory: .*; /dev/shm has \d+ bytes left; this needs \d+")


class Alone(Failures):
    def test_what_a_killed_mpirun_leaves_is_removed(self):
        sessions = pathlib.Path(tempfile.gettempdir())

        def left():
            return processes.segments() - self.segments | {str(path) for path in sessions.glob("ompi.*/pid.*")} - before

        before = {str(path) for path in sessions.glob("ompi.*/pid.*")}
        run = subprocess.Popen(command(2, "ddp", "--steps", "100000"), cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        run.kill()
        run.wait()
        self.assertEqual(processes.still_left(lambda: processes.processes_in(self.path), 10), [])
        self.assertEqual(bool(left()), TRANSPORT == "openmpi")
        done = subprocess.run([PROGRAM, "doctor", "--clean"], capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(left(), set(), done.stdout)


if __name__ == "__main__":
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    together = [*load(OnEveryTransport), *load(OnThreads if TRANSPORT == "threads" else OnProcesses)]
    together.sort(key=lambda test: "stopped" not in test.id())  # the longest first
    passed = processes.all_pass(processes.AT_ONCE[TRANSPORT], together)
    if TRANSPORT != "threads":
        passed = processes.all_pass(1, load(Alone)) and passed
    sys.exit(not passed)
