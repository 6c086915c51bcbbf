"""The program under mpirun, with real processes: the golden run, and the effect of a failing process on the others.

python3 mpi_test.py PROGRAM SOURCE_FOLDER openmpi|mpich
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import processes

PROGRAM, SOURCE, LIBRARY = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
GOLDEN = SOURCE / "tests" / "golden" / "tiny"
GOLDEN_RUN = ["--model", GOLDEN / "config.json", "--init", GOLDEN / "init.safetensors", "--data", GOLDEN / "tokens.bin",
              "--order", "sequential", "--global-batch", "8", "--dtype", "f64"]
MPIRUN = processes.MPIRUN[LIBRARY]
KILLED_BY_MPIRUN = processes.KILLED_BY_MPIRUN[LIBRARY]
TIMEOUT_S = 3
SANITIZED = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "all_to_all_v",
              "send_recv", "barrier")


def doubles_in(path):
    """All numbers of a file of weights in f64."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    tensors = [tensor for name, tensor in json.loads(content[8:8 + length]).items() if name != "__metadata__"]
    assert tensors and all(tensor["dtype"] == "F64" for tensor in tensors), path
    return struct.unpack_from(f"<{sum(end - begin for begin, end in (tensor['data_offsets'] for tensor in tensors)) // 8}d", content, 8 + length)


class Mpi(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def run_ranks(self, ranks, *words, flags=(), program=PROGRAM, finds_leaks=False):
        # The MPI library leaks. Telling its leaks from ours needs whole call stacks, which triple the time of a run.
        leaks = "fast_unwind_on_malloc=0" if finds_leaks else "detect_leaks=0"
        environment = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":" + leaks}
        start = time.monotonic()
        done = subprocess.run([*MPIRUN, *flags, "-np", str(ranks), program, *words], cwd=self.path, capture_output=True, text=True,
                              env=environment, timeout=90)
        return done, time.monotonic() - start

    def test_golden_run(self):
        expected = json.loads((GOLDEN / "expected.json").read_text())
        for ranks in (4,) if SANITIZED else (1, 2, 4, 8) if LIBRARY == "openmpi" else (1, 2, 4):
            done, _ = self.run_ranks(ranks, "train", "ddp", *GOLDEN_RUN, "--steps", "10", "--json", "r.json", "--save", "w.safetensors",
                                     finds_leaks=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads((self.path / "r.json").read_text())
            self.assertEqual(result["config"]["transport"], "mpi")
            self.assertEqual(len(result["ranks"]), ranks)
            for step, loss, norm in zip(result["steps"], expected["losses"], expected["grad_norms"], strict=True):
                self.assertAlmostEqual(step["loss"] / loss, 1, delta=1e-9)
                self.assertAlmostEqual(step["grad_norm"] / norm, 1, delta=1e-9)
            for line in result["theory"]:
                self.assertEqual(line["expected"], line["measured"], line)

    @unittest.skipIf(SANITIZED, "the code of other runs")
    def test_hostfiles_and_several_groups_of_processes(self):
        """A file of hosts; and `:` between groups of processes, which make one world and must say the same."""
        flag, line = ("--hostfile", "localhost slots=4\n") if LIBRARY == "openmpi" else ("-f", "localhost:4\n")
        (self.path / "hosts").write_text(line)
        words = ["train", "ddp", *GOLDEN_RUN, "--steps", "3", "--json", "r.json"]
        others = (":", "-np", "3", PROGRAM, *words)
        expected = json.loads((GOLDEN / "expected.json").read_text())
        for ranks, more, flags in ((4, (), (flag, "hosts")), (1, others, ())):
            done, _ = self.run_ranks(ranks, *words, *more, flags=flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads((self.path / "r.json").read_text())
            self.assertEqual((len(result["ranks"]), len(result["steps"])), (4, 3))
            for step, loss in zip(result["steps"], expected["losses"]):
                self.assertAlmostEqual(step["loss"] / loss, 1, delta=1e-9)
        done, _ = self.run_ranks(1, *words, *others, "--lr", "0.5")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--lr", done.stderr)

    def test_parameter_server(self):
        expected = json.loads((GOLDEN / "expected.json").read_text())
        cases = ((4, ["--colocated"]), (3, ["--servers", "2", "--mode", "asp"]), (1, ["--colocated", "--mode", "asp"]),
                 (3, ["--servers", "1"]), (4, ["--servers", "2"]))
        for ranks, words in cases[:2] if SANITIZED else cases:
            with self.subTest(words=words):
                done, _ = self.run_ranks(ranks, "train", "ps", *words, *GOLDEN_RUN, "--steps", "10", "--json", "r.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads((self.path / "r.json").read_text())
                for step, loss in zip(result["steps"], expected["losses"], strict=True):
                    self.assertAlmostEqual(step["loss"] / loss, 1, delta=1e-9)

    def test_pipeline(self):
        expected = json.loads((GOLDEN / "expected.json").read_text())
        cases = ((4, ["--schedule", "1f1b"]), (2, ["--schedule", "zb-v"]), (4, ["--schedule", "interleaved", "--virtual-stages", "2"]),
                 (4, ["--schedule", "zb-h2", "--recompute", "full"]), (4, ["--schedule", "dualpipe-v"]))
        for ranks, words in cases[:2] if SANITIZED else cases:
            with self.subTest(words=words):
                done, _ = self.run_ranks(ranks, "train", "pipeline", *words, *GOLDEN_RUN, "--micro-batches", "8", "--steps", "10",
                                         "--json", "r.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads((self.path / "r.json").read_text())
                for step, loss, norm in zip(result["steps"], expected["losses"], expected["grad_norms"], strict=True):
                    self.assertAlmostEqual(step["loss"] / loss, 1, delta=1e-9)
                    self.assertAlmostEqual(step["grad_norm"] / norm, 1, delta=1e-9)
                for line in result["theory"]:
                    self.assertEqual(line["expected"], line["measured"], line)

    @unittest.skipIf(SANITIZED, "on threads it is the same code, and other tests send as much between processes")
    def test_pairs_of_micro_batches_overlap_with_the_same_bits(self):
        words = ["train", "moe", "--ranks", "4", "--pp", "2", "--schedule", "dualpipe-v", "--micro-batches", "5", "--global-batch", "10",
                 "--model", "nano-moe", "--sequence-length", "16", "--steps", "3"]
        subprocess.run([PROGRAM, *words, "--json", "threads.json"], cwd=self.path, check=True, capture_output=True, timeout=90)
        expected = json.loads((self.path / "threads.json").read_text())
        done, _ = self.run_ranks(4, *words, "--overlap-pairs", "--json", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.path / "r.json").read_text())
        self.assertTrue(result["config"]["overlap_pairs"])
        for key in ("loss", "grad_norm"):
            self.assertEqual([step[key] for step in result["steps"]], [step[key] for step in expected["steps"]])
        exact = [line for line in result["theory"] if line["exact"]]
        self.assertGreaterEqual(len(exact), 32)
        for line in exact:
            self.assertEqual(line["expected"], line["measured"], line)

    def test_tensor_context_and_sharded_data_parallelism(self):
        expected = json.loads((GOLDEN / "expected.json").read_text())
        cases = ((4, "tp", []), (4, "sp", ["--tp-overlap"]),
                 (3, "fsdp", ["--forward-prefetch", "--sharding", "per-parameter"]),
                 (4, "fsdp", ["--reshard-after-forward", "2"]), (4, "zero", ["--stage", "1"]),
                 (4, "zero", ["--stage", "2", "--micro-batches", "2"]),
                 (8, "3d", ["--tp", "2", "--pp", "2", "--micro-batches", "2"]),
                 (4, "ring-attention", ["--layout", "zig-zag"]), (4, "cp", ["--layout", "striped"]), (4, "ulysses", []),
                 (4, "cp", ["--ulysses", "2", "--ring", "2"]), (8, "3d", ["--cp", "2", "--tp", "2", "--ring", "2"]),
                 (4, "3d", ["--cp", "2", "--pp", "2", "--micro-batches", "2", "--schedule", "zb-h1"]))
        for ranks, technique, words in [*cases[:3], cases[10]] if SANITIZED else cases:
            with self.subTest(technique=technique):
                done, _ = self.run_ranks(ranks, "train", technique, *words, *GOLDEN_RUN, "--steps", "3", "--json", "r.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads((self.path / "r.json").read_text())
                self.assertEqual((len(result["ranks"]), len(result["steps"])), (ranks, 3))
                for step, loss, norm in zip(result["steps"], expected["losses"], expected["grad_norms"]):
                    self.assertAlmostEqual(step["loss"] / loss, 1, delta=1e-10)
                    self.assertAlmostEqual(step["grad_norm"] / norm, 1, delta=1e-10)
                exact = [line for line in result["theory"] if line["exact"]]
                self.assertGreaterEqual(len(exact), 8 * ranks)
                for line in exact:
                    self.assertEqual(line["expected"], line["measured"], line)

    def test_experts(self):
        golden = GOLDEN.with_name("tiny_moe")
        expected = json.loads((golden / "expected.json").read_text())
        run = ["--model", golden / "config.json", "--init", golden / "init.safetensors", "--data", golden / "tokens.bin", "--order", "sequential",
               "--global-batch", "8", "--sequence-length", "32", "--dtype", "f64", "--threads", "1", "--steps", "3", "--json", "r.json"]
        cases = ((2, ["--ep", "2"]), (2, ["--ep", "1"]), (4, ["--ep", "4"]), (4, ["--ep", "2", "--tp", "2", "--sequence-parallel"]),
                 (4, ["--ep", "2", "--tp", "2"]), (4, ["--ep", "2", "--cp", "2"]), (4, ["--ep", "2", "--pp", "2", "--micro-batches", "4"]),
                 (4, ["--ep", "2", "--zero", "1"]), (4, ["--ep", "2", "--zero", "3"]), (4, ["--ep", "2", "--zero", "2", "--micro-batches", "2"]),
                 (4, ["--token-dispatcher-type", "deduplicated", "--router-weights-at", "expert"]))
        subprocess.run([PROGRAM, "train", "serial", *run, "--save", "one.safetensors"], cwd=self.path, check=True, capture_output=True, timeout=60)
        one = doubles_in(self.path / "one.safetensors")
        for ranks, words in cases[:1] if SANITIZED else cases:
            with self.subTest(ranks=ranks, words=words):
                done, _ = self.run_ranks(ranks, "train", "moe", *words, *run, "--save", "r.safetensors")
                self.assertEqual(done.returncode, 0, done.stderr)
                for weight, expected_weight in zip(doubles_in(self.path / "r.safetensors"), one, strict=True):
                    self.assertAlmostEqual(weight, expected_weight, delta=1e-10)
                result = json.loads((self.path / "r.json").read_text())
                exact = [line for line in result["theory"] if line["exact"]]
                self.assertGreaterEqual(len(exact), 8 * ranks)
                for line in exact:
                    self.assertEqual(line["expected"], line["measured"], line)
                self.assertEqual(len(result["steps"]), 3)
                for step, loss, norm, aux in zip(result["steps"], expected["losses"], expected["grad_norms"], expected["aux_losses"]):
                    for key, value in (("loss", loss), ("grad_norm", norm), ("aux_loss", aux)):
                        self.assertAlmostEqual(step[key] / value, 1, delta=1e-10)
                self.assertEqual([step["tokens_of_experts"] for step in result["steps"]], expected["tokens_of_experts"][:3])

    def test_auto_knows_that_processes_map_each_others_memory(self):
        done, _ = self.run_ranks(2, "bench", "all_reduce", "-b", "64", "-e", "256K", "-f", "64", "-n", "2", "-w", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        chosen = [line.split()[5] for line in done.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(chosen, ["auto=direct"] * 3)

    @unittest.skipIf(SANITIZED, "on threads it is the same code, and other tests send as much between processes")
    def test_bench_of_groups_in_the_table_of_nccl_tests(self):
        done, _ = self.run_ranks(4, "bench", "all_reduce", "-b", "4K", "-e", "64K", "-f", "16", "-n", "2", "-w", "1", "--split", "MOD 2",
                                 "--table", "nccl-tests", "--json", "b.json")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        devices = re.findall(r"(?m)^#  Rank +(\d) Group +(\d) Pid +(\d+) on", done.stdout)
        self.assertEqual([device[:2] for device in devices], [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")])
        self.assertEqual(len({pid for _, _, pid in devices}), 4)
        self.assertIn("# nThread 1 nGpus 1 ", done.stdout)
        self.assertEqual(re.findall(r"(?m)^ +(\d+) +\d+ +float +sum +-1 ", done.stdout), ["4096", "65536"])
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        result = json.loads((self.path / "b.json").read_text())
        self.assertEqual(result["groups"], [[0, 2], [1, 3]])
        self.assertEqual({entry["ranks"] for entry in result["benchmarks"]}, {2})

    @unittest.skipIf(SANITIZED, "on threads it is the same code, and other tests send as much between processes")
    def test_bench_of_a_parameter_server(self):
        done, _ = self.run_ranks(4, "bench", "ps", "-b", "8", "-e", "512K", "-f", "256", "-n", "2", "-w", "1", "-d", "i64")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertIn("# ps among 2 ranks", done.stdout)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def test_links_between_processes(self):
        done, _ = self.run_ranks(4, "bench", "pairs", "-e", "64K", "-n", "2", "-w", "0", "--json", "p.json")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertIn("# pairs among 4 ranks over mpi: 6 links in 3 rounds", done.stdout)
        file = json.loads((self.path / "p.json").read_text())
        self.assertEqual(len({rank["host"] for rank in file["ranks"]}), 1)
        self.assertEqual([(link["in_host"], min(link["latency_us"], link["gb_per_s"], link["back_gb_per_s"]) > 0) for link in file["links"]],
                         [(True, True)] * 6)
        done, _ = self.run_ranks(4, "bench", "pairs", "--rounds", "4", "-e", "1K")
        # MPICH ends with 9 if it has killed a rank before that could end.
        self.assertIn(done.returncode, (2, 9) if LIBRARY == "mpich" else (2,), done.stderr)
        self.assertIn("all pairs take 3", done.stderr)

    @unittest.skipIf(SANITIZED, "on threads it is the same code, and other tests send as much between processes")
    def test_burn_in_of_processes(self):
        done, _ = self.run_ranks(3, "burn-in", "--passes", "2", "--effect", "1000", "--fault", "rank=2,op=1,kind=flip-gradient", "--json", "b.json")
        self.assertEqual(done.returncode, 1, done.stderr + done.stdout)
        self.assertIn("rank 2 computed 1 step twice with different gradients, first in pass 0", done.stdout)
        file = json.loads((self.path / "b.json").read_text())
        self.assertEqual((file["steps_compared"], [finding["code"] for finding in file["findings"]]), (12, [501]))

    def test_workers_of_a_parameter_server_keep_their_bound_and_may_fail(self):
        words = ["train", "ps", "--servers", "2", "--mode", "ssp", "--staleness", "1", *GOLDEN_RUN, "--steps", "10", "--json", "r.json"]
        done, _ = self.run_ranks(4, *words, "--slow-rank", "0:3")
        self.assertEqual(done.returncode, 0, done.stderr)
        updates = json.loads((self.path / "r.json").read_text())["updates"]
        self.assertEqual(len(updates), 2 * 2 * 10)
        self.assertLessEqual(max(update["lead"] for update in updates), 1)
        for operation in ("12",) if SANITIZED else ("3", "12"):
            done, _ = self.run_ranks(4, *words, "--fault", f"rank=1,op={operation},kind=throw")
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads((self.path / "r.json").read_text())
            self.assertEqual([lost["rank"] for lost in result["lost"]], [1])
            self.assertEqual(len([u for u in result["updates"] if u["rank"] == 0]), 2 * 10)

    def test_colocated_servers_with_asynchronous_workers(self):
        words = ["train", "ps", "--colocated", *GOLDEN_RUN, "--steps", "10", "--json", "r.json"]
        for mode in (["--mode", "asp"], ["--mode", "ssp", "--staleness", "1", "--slow-rank", "0:3"]):
            with self.subTest(mode=mode):
                done, _ = self.run_ranks(3, *words, *mode)
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads((self.path / "r.json").read_text())
                self.assertEqual(len(result["updates"]), 3 * 3 * 10)
                if "ssp" in mode:
                    self.assertLessEqual(max(update["lead"] for update in result["updates"]), 1)
                for line in result["theory"]:
                    self.assertEqual(line["expected"], line["measured"], line)
        done, seconds = self.run_ranks(3, *words, "--mode", "asp", "--fault", "rank=1,op=20,kind=throw")
        self.assertIn(processes.status_asked_for(done.returncode, done.stderr), [4, *KILLED_BY_MPIRUN], done.stderr)
        self.assertIn("rank 1 of 3: [lost rank] planted fault", done.stderr)
        self.assertLess(seconds, 20)

    def passes(self, ranks, test):
        done, _ = self.run_ranks(ranks, f"--gtest_filter={test}", "--gtest_color=no", program=PROGRAM.with_name("collectives_test"),
                                 finds_leaks=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # Of what Google Test says, this line is written in one piece: others mix with those of the other ranks.
        self.assertEqual(done.stdout.count("1 test from 1 test suite ran"), ranks, done.stdout)

    @unittest.skipIf("TSAN_OPTIONS" in os.environ, "it takes the order of Open MPI's own locks for a deadlock")
    def test_two_ends_of_a_rank(self):
        self.passes(3, "TwoEnds.AreForAThreadEach")

    def test_groups_at_the_same_time(self):
        self.passes(6, "Split.GroupsKnowNothingOfEachOthersCalls")

    def test_messages_from_shared_memory(self):
        self.passes(2, "DeviceMemory.MayBeUsedAgainOnceAMessageIsSent")
        self.passes(2, "DeviceMemory.IsSentInManyMessagesAtOnce")

    def test_windows(self):
        self.passes(3, "Window.IsWrittenByTheSenderOfItsMessage")
        for test in ["TakesNoOtherMessage", "IsWhereItsMessageIsReceived", "ThereMayBeManyAndNoneIsHalfWritten"]:
            self.passes(2, f"Window.{test}")

    def test_direct_all_reduce(self):
        # MPICH's ranks wait without yielding their cores while they start and end.
        for ranks in (3,) if SANITIZED else (1, 2, 3, 4) if LIBRARY == "mpich" else range(1, 9):
            for test in ("AddsInTheOrderOfTheRanksWhereverTheDataLie", "DoesNotMixOperationsThatFollowEachOther", "RunsInGroupsAtTheSameTime"):
                with self.subTest(ranks=ranks, test=test):
                    self.passes(ranks, f"Ranks/DirectAllReduce.{test}/{ranks - 1}")
        self.passes(2, "DirectWait.LetsOtherMessagesLeave")

    def test_bench_is_right_also_in_segments(self):
        done, _ = self.run_ranks(2, "bench", "all_reduce", "-b", "4", "-e", "4M", "-f", "64", "-n", "3", "-w", "1",
                                 "--algorithm", "ring,vendor")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertIn("vendor", done.stdout)
        self.assertNotIn("see each other's memory", done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"# library: Open MPI v\d" if LIBRARY == "openmpi" else r"# library: MPICH \d")

    @unittest.skipIf(SANITIZED, "sanitizers reserve more addresses than there is memory")
    def test_ranks_without_shared_memory(self):
        total_kib = re.search(r"MemTotal: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]

        def run(ranks, *words):
            done = subprocess.run([*MPIRUN, "-np", ranks, "bash", "-c", f'ulimit -v {total_kib} && exec "$0" "$@"', *words],
                                  cwd=self.path, capture_output=True, text=True, timeout=90)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            return done.stderr + done.stdout

        said = run("2", PROGRAM, "bench", "all_reduce", "-b", "1K", "-e", "4M", "-f", "8", "-n", "2", "-w", "1", "--algorithm",
                   "ring,segmented_ring")
        self.assertIn("see each other's memory", said)
        self.assertIn("# Out of bounds values : 0 OK", said)
        said = run("6", PROGRAM.with_name("collectives_test"), "--gtest_filter=Split.GroupsKnowNothingOfEachOthersCalls")
        self.assertEqual(said.count("1 test from 1 test suite ran"), 6, said)

    @unittest.skipIf(SANITIZED, "the sizes of the next test reach as far")
    def test_long_data_is_right_in_every_operation_and_algorithm(self):
        for operation in OPERATIONS:
            with self.subTest(operation=operation):
                done, _ = self.run_ranks(3, "bench", operation, "-b", "300001", "-e", "1200004", "-f", "4", "-n", "1", "-w", "0",
                                         "--algorithm", "all")
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def every_operation_is_right(self, ranks):
        # MPICH's ranks wait without yielding their cores: with more of them than cores, everything takes time slices. Threads run
        # the same kernels of all types.
        types = [] if SANITIZED or (LIBRARY == "mpich" and ranks > 2) else ["-d", "all", "-o", "all"]
        most, factor = ("1295029", "109") if SANITIZED else ("700", "13")
        for operation in OPERATIONS:
            with self.subTest(operation=operation):
                done, _ = self.run_ranks(ranks, "bench", operation, "-b", "1", "-e", most, "-f", factor, "-n", "1", "-w", "0",
                                         *types, "--algorithm", "all", "-r", str(ranks - 1))
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                self.assertIn("# Out of bounds values : 0 OK", done.stdout)
                self.assertIn(" vendor ", done.stdout)

    def test_every_operation_algorithm_type_and_reduction_is_right(self):
        self.every_operation_is_right(3)

    @unittest.skipIf(SANITIZED, "three ranks run the same code")
    def test_every_operation_is_right_on_one_rank(self):
        self.every_operation_is_right(1)

    @unittest.skipIf(SANITIZED, "three ranks run the same code")
    def test_every_operation_is_right_on_two_ranks(self):
        self.every_operation_is_right(2)

    @unittest.skipIf(SANITIZED or LIBRARY == "mpich", "three and five ranks run the same code")
    def test_every_operation_is_right_on_four_ranks(self):
        self.every_operation_is_right(4)

    @unittest.skipIf(SANITIZED, "three ranks run the same code")
    def test_every_operation_is_right_on_five_ranks(self):
        self.every_operation_is_right(5)

    def fails(self, status, part, *words, technique="ddp", ranks=3, flags=()):
        done, seconds = self.run_ranks(ranks, "train", technique, *GOLDEN_RUN[:-4], "--global-batch", "6", "--steps", "8",
                                       "--timeout", str(TIMEOUT_S), *words, flags=flags)
        said = done.stderr + done.stdout
        if status is None:
            self.assertNotEqual(done.returncode, 0, said)
        else:
            self.assertIn(processes.status_asked_for(done.returncode, said), [status, *KILLED_BY_MPIRUN], said)
        self.assertIn(part, said)
        self.assertLess(seconds, TIMEOUT_S + 12, said)

    def test_rank_that_throws(self):
        self.fails(4, "stopped because rank 1 failed", "--fault", "rank=1,op=3,kind=throw")
        # In the middle of a layer, while the others are in one of its exchanges.
        for technique, words in (("tp", []), ("sp", ["--tp-overlap"]), ("ring-attention", [])):
            with self.subTest(technique=technique):
                self.fails(4, "stopped because rank 1 failed", "--fault", "rank=1,op=60,kind=throw", *words,
                           technique=technique, ranks=4)

    def test_rank_that_never_comes(self):
        self.fails(4, "rank 2 keeps the others waiting", "--fault", "rank=2,op=3,kind=hang")

    def test_ranks_that_disagree(self):
        for kind in ("count", "dtype", "op", "root", "order"):
            with self.subTest(kind=kind):
                self.fails(1, "mismatch", "--fault", f"rank=1,op=3,kind={kind}")

    def test_rank_that_is_stopped(self):
        self.fails(4, "rank 1 keeps the others waiting", "--fault", "rank=1,op=3,kind=stop")

    def test_direct_all_reduce_with_a_failed_rank(self):
        for kind, status, part in (("throw", 4, "stopped because rank 1 failed"), ("count", 1, "mismatch"),
                                   ("stop", 4, "rank 1 never entered all_reduce/direct #1")):
            with self.subTest(kind=kind):
                self.fails(status, part, "--algorithm", "direct", "--fault", f"rank=1,op=4,kind={kind}")

    def test_rank_that_dies(self):
        # The exit status is mpirun's, which also notices the failure.
        noticed = "has died while this rank waits for it"
        for kind in ("exit", "leave"):
            self.fails(4, "rank 1 failed: [lost rank] called exit()", "--fault", f"rank=1,op=3,kind={kind}", ranks=2)
        # After a kill by a signal, MPICH's mpirun kills the others before they can report.
        self.fails(None, noticed if LIBRARY == "openmpi" else "", "--fault", "rank=1,op=3,kind=kill")

    def test_bad_input(self):
        done, _ = self.run_ranks(2, "train", "ddp", *GOLDEN_RUN, "--steps", "0")
        self.assertEqual(done.returncode, 2, done.stderr)

    def tearDown(self):
        self.assertEqual(processes.still_left(lambda: processes.processes_in(self.path), 10), [], "processes are left over")


if __name__ == "__main__":
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Mpi)
    sys.exit(not processes.all_pass(processes.AT_ONCE[LIBRARY], tests))
