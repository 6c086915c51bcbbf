"""lockstep bench: its table, its files, and the input it refuses.

python3 bench_test.py PROGRAM SOURCE_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from processes import processes_in

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
GLOO = PROGRAM.parent.parent / "lib" / "liblockstep_gloo.so"
GOLDEN = SOURCE / "tests" / "golden" / "tiny"
THREADS = range(1, 1 + min(2, len(os.sched_getaffinity(0))))

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "all_to_all_v", "send_recv",
              "barrier")


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0, environment=None):
        done = subprocess.run([PROGRAM, "bench", *words], cwd=self.path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_json_holds_the_times_of_every_rank(self):
        self.bench("all_reduce", "--ranks", "3", "-b", "1K", "-e", "1K", "-n", "4", "--clock", "unit", "--link", "alpha=1us,beta=1GB/s",
                   "--algorithm", "ring,binomial_tree", "--json", "b.json")
        file = json.loads((self.path / "b.json").read_text())
        self.assertEqual([rank["rank"] for rank in file["ranks"]], [0, 1, 2])
        self.assertEqual({rank["device"] for rank in file["ranks"]}, {"none"})
        entries = {entry["name"].split("/iterations")[0]: entry for entry in file["benchmarks"]}
        self.assertEqual([times["name"] for times in file["rank_times"]], list(entries))
        for times in file["rank_times"]:
            entry = entries[times["name"]]
            self.assertAlmostEqual(max(times["duration_us"]), entry["p50_us"], 6)
            self.assertGreaterEqual(min(times["late_us"]), 0)
            for rank in range(3):
                # Only messages take time here.
                self.assertAlmostEqual(times["own_us"][rank] + times["waited_us"][rank], times["duration_us"][rank], 6)
                waits = sum(us for waiting, _, us in times["waited_for_us"] if waiting == rank)
                self.assertAlmostEqual(waits, times["waited_us"][rank], 6)
            if "/ring/" in times["name"]:
                self.assertEqual([(rank, peer) for rank, peer, _ in times["waited_for_us"]], [(0, 2), (1, 0), (2, 1)])
            self.assertEqual(times["equal_work"], "/ring/" in times["name"])
        self.assertEqual(file["slow_ranks"], {"compared": 3, "ranks": [], "explained_share": 0, "is_cause": False})

    def test_techniques_that_train_have_the_times_of_every_rank(self):
        steps = ("--steps", "3", "--sequence-length", "8")
        for ranks, words in ((3, ("sharded", "--ranks", "2,3", "--strategy", "ddp,zero-1", *steps)), (2, ("pipeline", "-p", "2", "-m", "2,4", *steps)),
                             (3, ("cp", "--ranks", "3", "--lengths", "24", "--method", "all-gather,ring-contiguous", "--repetitions", "1", "--steps", "2"))):
            with self.subTest(technique=words[0]):
                self.bench(*words, "--json", "t.json")
                file = json.loads((self.path / "t.json").read_text())
                entries = {entry["name"].split("/iterations")[0]: int(entry["ranks"]) for entry in file["benchmarks"]}
                self.assertEqual({times["name"]: len(times["own_us"]) for times in file["rank_times"]}, entries)
                for times in file["rank_times"]:
                    self.assertEqual(set(times["late_us"]), {None})
                    for own, waited, whole in zip(times["own_us"], times["waited_us"], times["duration_us"], strict=True):
                        self.assertGreater(own, 0)
                        self.assertAlmostEqual(own + waited, whole, 6)
                self.assertEqual([rank["rank"] for rank in file["ranks"]], list(range(ranks)))
                self.assertEqual(file.get("slow_ranks", {}).get("compared", 0), 3 if words[0] == "sharded" else 0)

    def test_json_equals_the_printed_table_of_all_reduce(self):
        done = self.bench("all_reduce", "--ranks", "3", "-b", "4", "-e", "4K", "-f", "32", "-n", "3", "--json", "b.json")
        entries = json.loads((self.path / "b.json").read_text())["benchmarks"]
        rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual([int(row[0]) for row in rows], [4, 128, 4096])
        for row, (out_of_place, in_place) in zip(rows, zip(entries[::2], entries[1::2]), strict=True):
            for entry, (time, algbw, busbw, wrong) in ((out_of_place, row[6:10]), (in_place, row[10:14])):
                self.assertAlmostEqual(entry["p50_us"], float(time), delta=0.006)
                self.assertEqual((entry["bytes"], entry["wrong"], wrong), (int(row[0]), 0, "0"))
                self.assertAlmostEqual(entry["algbw_gb_per_s"], entry["bytes"] / entry["p50_us"] / 1e3, delta=1e-9)
                self.assertAlmostEqual(entry["busbw_gb_per_s"], entry["algbw_gb_per_s"] * 2 * 2 / 3, delta=1e-9)
                self.assertAlmostEqual(entry["busbw_gb_per_s"], float(busbw), delta=0.006)
                self.assertLessEqual(entry["min_us"], entry["p50_us"])

    def test_every_operation_algorithm_type_and_reduction_is_right(self):
        for operation in OPERATIONS:
            with self.subTest(operation=operation):
                done = self.bench(operation, "--ranks", "3", "-b", "1", "-e", "700", "-f", "13", "-n", "1", "-w", "0", "-d", "all",
                                  "-o", "all", "--algorithm", "all", "-r", "2")
                self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def test_flags_that_an_operation_ignores_are_named(self):
        for operation, ignored in ("all_gather", {"-o", "-r"}), ("broadcast", {"-o"}), ("all_reduce", {"-r"}), ("reduce", set()):
            done = self.bench(operation, "-b", "8", "-e", "8", "-n", "1", "-o", "max", "-r", "1")
            self.assertEqual(set(re.findall(r"# warning: (-\w)\S* has no effect", done.stdout)), ignored, operation)
        self.assertNotIn("has no effect", self.bench("all_gather", "-b", "8", "-e", "8", "-n", "1").stdout)

    def test_peers_are_in_the_same_table(self):
        before = set(os.listdir("/dev/shm"))
        for library in [name for name in ("openmpi", "mpich") if (GLOO.parent / f"liblockstep_{name}.so").exists()]:
            with self.subTest(library=library):
                done = self.bench("all_reduce", "-b", "8", "-e", "128K", "-f", "128", "-d", "i64", "-o", "all", "-n", "4", "-w", "1",
                                  "--algorithm", "ring", "--peer", library, "--json", "b.json")
                entries = json.loads((self.path / "b.json").read_text())["benchmarks"]
                for size in (8, 1024, 131072):
                    for op in ("sum", "avg"):
                        found = [e for e in entries if f"/bytes:{size}/" in e["name"] and f"redop:{op}/" in e["name"]]
                        self.assertEqual(len(found), 4, "in place and out of place, ours and the peer's")
                        for entry in found:
                            self.assertEqual(entry["wrong"], 0)
                            self.assertEqual(len(entry["samples_us"]), 4)
                            self.assertGreater(min(entry["samples_us"]), 0)
                self.assertIn(f" {library} ", done.stdout)
                self.assertEqual(len({e["name"] for e in entries}), len(entries))
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set(), "shared memory is left over")

    def without_gloo(self):
        return "no libgloo-dev when it was built" if not GLOO.exists() else ""

    def test_gloo_is_in_the_same_table(self):
        if self.without_gloo():
            done = self.bench("all_reduce", "--peer", "gloo", status=2)
            self.assertIn("libgloo-dev", done.stderr)
            self.assertEqual(done.stdout, "", "it is refused before anything is measured")
            self.skipTest(self.without_gloo())
        lacking = {"all_reduce": "no bf16", "reduce": "no bf16", "gather": "no gather of unequal chunks",
                   "scatter": "no scatter of unequal chunks", "reduce_scatter": "no reduce_scatter"}
        for operation in OPERATIONS:
            with self.subTest(operation=operation):
                done = self.bench(operation, "--ranks", "3", "-b", "12", "-e", "100K", "-f", "91", "-n", "1", "-w", "0", "-d", "all", "-o",
                                  "all", "-r", "2", "--peer", "gloo", "--json", "b.json")
                entries = [e for e in json.loads((self.path / "b.json").read_text())["benchmarks"] if "/gloo/tcp/" in e["name"]]
                self.assertEqual({e["wrong"] for e in entries}, set() if operation == "reduce_scatter" else {0})
                rows = [line for line in done.stdout.splitlines() if " gloo " in line and not line.startswith("#")]
                self.assertEqual(bool(rows), operation != "reduce_scatter")
                self.assertIn("# warning: gloo receives" if os.cpu_count() < 6 else "", done.stdout)
                skipped = [line for line in done.stdout.splitlines() if line.startswith("# skipped: ")]
                # gloo reduces no bf16 and no types of 8 bits.
                self.assertEqual(len(skipped), 3 if operation in ("all_reduce", "reduce") else operation in lacking, skipped)
                self.assertIn(lacking.get(operation, ""), "".join(skipped))
        self.assertIn("has nothing for 1 rank", self.bench("all_reduce", "--ranks", "1", "-n", "1", "--peer", "gloo").stdout)

    def test_a_peer_that_is_missing_or_dies_is_an_error(self):
        before = set(os.listdir("/dev/shm"))
        self.assertIn("not on PATH", self.bench("all_reduce", "--peer", "openmpi", status=2, environment={"PATH": str(self.path)}).stderr)
        self.assertIn("openmpi, mpich or gloo", self.bench("all_reduce", "--peer", "intel", status=2).stderr)
        self.assertIn("the algorithm vendor", self.bench("all_reduce", "--peer", "nccl", status=2).stderr)
        self.bench("all_reduce", "--peer", "openmpi", "--clock", "unit", status=2)
        (self.path / "mpirun.openmpi").write_text("#!/bin/sh\necho no network\nexit 1\n")
        (self.path / "mpirun.openmpi").chmod(0o755)
        self.assertIn("no network", self.bench("all_reduce", "--peer", "openmpi", status=4, environment={"PATH": f"{self.path}:/bin"}).stderr)
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set(), "shared memory is left over")

    def test_a_killed_benchmark_leaves_no_peer(self):
        if not shutil.which("mpirun.openmpi"):
            self.skipTest("no mpirun.openmpi")
        self.leaves_nothing_when_killed("openmpi")

    def test_a_killed_benchmark_leaves_no_gloo(self):
        if self.without_gloo():
            self.skipTest(self.without_gloo())
        self.leaves_nothing_when_killed("gloo")

    def leaves_nothing_when_killed(self, library):
        before = set(os.listdir("/dev/shm"))
        words = [PROGRAM, "bench", "all_reduce", "-b", "8", "-e", "8", "-f", "2", "-n", "10", "--repetitions", "10000", "-c", "0",
                 "--algorithm", "ring", "--peer", library]
        with subprocess.Popen(words, cwd=self.path, stdout=subprocess.DEVNULL) as running:
            self.wait_until(lambda: any(name.startswith("lockstep-peer-") for name in os.listdir("/dev/shm")), "the peer does not start")
            self.wait_until(lambda: not any(name.startswith("lockstep-peer-") for name in os.listdir("/dev/shm")), "the board keeps its name")
            running.kill()
        self.wait_until(lambda: not set(os.listdir("/dev/shm")) - before, "shared memory is left over")
        self.wait_until(lambda: not processes_in(self.path), "processes are left over")

    def wait_until(self, holds, otherwise):
        deadline = time.monotonic() + 30
        while not holds():
            self.assertLess(time.monotonic(), deadline, otherwise)
            time.sleep(0.01)

    def test_a_parameter_server_is_compared_with_all_reduces(self):
        self.bench("ps", "--workers", "2", "-b", "8", "-e", "512K", "-f", "256", "-n", "4", "-d", "i64", "--json", "ps.json")
        entries = json.loads((self.path / "ps.json").read_text())["benchmarks"]
        names = {e["name"].split("/")[1] for e in entries}
        self.assertEqual(names, {"ps_1_server", "ps_2_servers", "ps_N_servers", "ps_colocated", "ring", "double_binary_tree"})
        self.assertTrue(all(e["wrong"] == 0 and e["name"].startswith("ps/") for e in entries))
        virtual = ("--clock", "unit", "--link", "10gbe", "-b", "1M", "-e", "1M", "-n", "1", "-w", "0")
        self.bench("ps", "--workers", "3,16", "--servers", "1,3", "--algorithm", "ring", "--device", "none", *virtual, "--json", "ps.json")
        entries = json.loads((self.path / "ps.json").read_text())["benchmarks"]
        self.assertEqual(len(entries), 6)
        for entry in entries:
            if "ranks:16" in entry["name"] and "3_servers" in entry["name"]:
                self.assertEqual(entry["model_us"], 0, "there is no closed form for it")
            else:
                self.assertAlmostEqual(entry["p50_us"] / entry["model_us"], 1, delta=1e-5, msg=entry["name"])
        self.assertIn("write numbers from 1", self.bench("ps", "--servers", "few", status=2).stderr)
        self.assertIn("--workers 0", self.bench("ps", "--workers", "0", status=2).stderr)
        self.bench("ps", "--ranks", "3", status=2)
        self.bench("ps", "--algorithm", "rong", status=2)

    def test_baseline(self):
        words = ("all_reduce", "-b", "64K", "-e", "256K", "-n", "6", "--clock", "unit", "--link", "10gbe", "--algorithm", "ring")
        self.bench(*words, "--json", "old.json")
        self.assertIn("0 slower", self.bench(*words, "--baseline", "old.json").stdout)
        file = json.loads((self.path / "old.json").read_text())
        for entry in file["benchmarks"]:
            entry["samples_us"] = [sample / 2 for sample in entry["samples_us"]]
        (self.path / "fast.json").write_text(json.dumps(file))
        self.assertIn("SLOWER", self.bench(*words, "--baseline", "fast.json", status=3).stdout)
        file["context"]["lockstep.schema"] = "lockstep.bench/0"
        (self.path / "future.json").write_text(json.dumps(file))
        for name in ("future.json", "missing.json"):
            done = self.bench(*words, "--baseline", name, status=2)
            self.assertEqual(done.stdout, "", "it is refused before anything is measured")
            self.assertIn(name, done.stderr)

    def test_plot(self):
        words = ("all_reduce", "-b", "1K", "-e", "4K", "-n", "2", "--algorithm", "ring,direct")
        self.assertIn("must end with", self.bench(*words, "--plot", "picture.gif", status=2).stderr)
        done = subprocess.run([PROGRAM, "bench", *words, "--plot", "picture.svg"], cwd=self.path, capture_output=True, text=True, timeout=120)
        if "no python3 with matplotlib" in done.stderr:
            self.skipTest("no python3 with matplotlib")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("<svg", (self.path / "picture.svg").read_text())
        self.assertEqual([p.name for p in self.path.iterdir() if p.suffix == ".json"], [])

    def test_the_environment_is_recorded_without_secrets(self):
        self.bench("all_reduce", "-b", "8", "-e", "8", "-n", "1", "--json", "b.json",
                   environment={"UCX_TLS": "tcp,self", "SECRET_TOKEN": "do-not-tell", "OMPI_MCA_btl": "tcp"})
        text = (self.path / "b.json").read_text()
        environment = json.loads(json.loads(text)["context"]["lockstep.environment"])
        self.assertEqual(environment["settings"].get("UCX_TLS"), "tcp,self")
        self.assertEqual(environment["settings"].get("OMPI_MCA_btl"), "tcp")
        self.assertNotIn("do-not-tell", text)

    def test_samples_are_kept_by_repetition(self):
        self.bench("all_reduce", "-b", "1K", "-e", "1K", "-n", "4", "--repetitions", "3", "--algorithm", "ring,direct", "--json", "b.json")
        entries = [entry for entry in json.loads((self.path / "b.json").read_text())["benchmarks"] if entry["run_type"] == "iteration"]
        self.assertEqual(len(entries), 2 * 2 * 3)
        for entry in entries:
            self.assertEqual(len(entry["samples_us"]), 4)
            self.assertAlmostEqual(entry["real_time"], sum(entry["samples_us"]) / 4, delta=1e-6 * entry["real_time"])
            self.assertIn(entry["label"], entry["name"])

    def test_virtual_time_equals_the_model_every_time(self):
        words = ["all_reduce", "--ranks", "16", "-b", "256K", "-e", "1M", "-f", "4", "--algorithm", "ring,halving_doubling,segmented_ring",
                 "--clock", "unit", "--link", "alpha=3us,beta=10GB/s", "-n", "2", "-w", "0"]
        first, second = self.bench(*words).stdout, self.bench(*words).stdout
        self.assertEqual(first, second)
        for row in (line.split() for line in first.splitlines() if not line.startswith("#")):
            self.assertEqual((row[6], row[10]), (row[14], row[14]), row)

    def test_a_thousand_ranks_without_data(self):
        ranks = 16384
        done = self.bench("all_reduce", "--ranks", str(ranks), "--device", "none", "--clock", "unit", "--link", "dgx", "-b", "64M", "-e", "64M",
                          "-n", "1", "-w", "0", "--algorithm", "ring,hierarchical,halving_doubling")
        times = {row[5]: float(row[6]) for row in map(str.split, done.stdout.splitlines()) if not row[0].startswith("#")}
        self.assertLess(times["hierarchical"], times["ring"])
        self.assertIn("N/A", done.stdout)

    def test_equal_ranks_run_for_all(self):
        def running(operation, *words):
            done = self.bench(operation, "--clock", "unit", "--json", "b.json", *words)
            self.all_first = re.findall(r"# measured first, on every rank: (.*)", done.stdout)
            found = re.search(r"# (one rank|the \d+ ranks of one node) runs? and stands? for all", done.stdout)
            entries = json.loads((self.path / "b.json").read_text())["benchmarks"]
            return found[1] if found else "all", [entry["samples_us"] for entry in entries if "samples_us" in entry]
        # A delay before the warm-up changes nothing but that all ranks run.
        operations = {"all_reduce": "ring,segmented_ring,recursive_doubling,halving_doubling,hierarchical,torus",
                      "reduce_scatter": "ring,pairwise,recursive_halving", "all_gather": "ring,bruck,recursive_doubling",
                      "all_to_all": "pairwise,bruck", "all_to_all_v": "pairwise", "send_recv": "shift"}
        ranks, compared = "32", 0
        for operation, algorithms in operations.items():
            for link, expected in ("ndr", "one rank"), ("dgx", "the 8 ranks of one node"):
                words = [operation, "--ranks", ranks, "--link", link, "-b", "1K", "-e", "1M", "-f", "1024", "-n", "2", "-w", "1",
                         "--algorithm", algorithms]
                which, few = running(*words)
                self.assertEqual(which, expected, operation)
                which, every = running(*words, "--fault", "rank=0,op=0,kind=delay")
                self.assertEqual((which, few), ("all", every), operation)
                compared += len(few)
        self.assertEqual(compared, 112)
        # Where some algorithms' ranks differ, all run these.
        words = ["all_reduce", "--ranks", ranks, "--link", "dgx", "-b", "1K", "-e", "1M", "-f", "1024", "-n", "2", "-w", "1",
                 "--repetitions", "2", "--algorithm", "ring,linear,hierarchical,binomial_tree,linear"]
        which, few = running(*words)
        self.assertEqual((which, self.all_first), ("the 8 ranks of one node", ["linear, binomial_tree"]))
        self.assertEqual((len(few), len(few[0])), (40, 2))
        which, every = running(*words, "--fault", "rank=0,op=0,kind=delay")
        self.assertEqual(which, "all")
        for one, other in zip(few, every, strict=True):  # they begin at other times, which rounds differently
            self.assertTrue(all(abs(a / b - 1) < 1e-9 for a, b in zip(one, other, strict=True)), (one, other))
        # Many ranks that differ have a world for each placement.
        words = ["all_reduce", "--ranks", "1024", "--link", "ndr", "-b", "1K", "-e", "1M", "-f", "1024",
                 "--algorithm", "double_binary_tree,binomial_tree"]
        which, few = running(*words)
        self.assertEqual((which, self.all_first, len(few)), ("all", ["double_binary_tree, binomial_tree"], 8))
        which, every = running(*words, "--fault", "rank=0,op=0,kind=delay")
        self.assertEqual((which, self.all_first), ("all", []))
        for one, other in zip(few, every, strict=True):
            self.assertTrue(all(abs(a / b - 1) < 1e-9 for a, b in zip(one, other, strict=True)), (one, other))
        sizes = ["all_reduce", "-b", "1K", "-e", "1K"]
        self.assertEqual(running(*sizes, "--ranks", "8", "--link", "dgx", "--algorithm", "binomial_tree")[0], "all")
        ring = [*sizes, "--algorithm", "ring"]
        for words in (["--ranks", "12", "--link", "ndr"], ["--ranks", "8", "--link", "ndr", "-c", "1"], ["--ranks", "8", "--link", "ndr", "-a", "0"],
                      ["--ranks", "8", "--link", "ndr", "--trace", "t.json"],
                      ["--ranks", "24", "--link", "alpha=2us,beta=1GB/s,node=3,node-alpha=1us,node-beta=9GB/s"]):
            self.assertEqual(running(*ring, *words)[0], "all", words)
        self.assertEqual(running("all_to_all_v", "--ranks", "8", "--skew", "zipf:1", "-b", "1K", "-e", "1K", "--algorithm", "pairwise")[0], "all")
        self.bench("all_reduce", "--ranks", "8", "--clock", "unit", "--link", "ndr", "-b", "1K", "-e", "1K", "--algorithm", "binomial_tree", "--tune", "tuning.json")
        tuned = ["all_reduce", "--ranks", "8", "--link", "ndr", "-b", "1K", "-e", "1K"]
        self.assertEqual(running(*tuned)[0], "one rank")
        self.assertEqual(running(*tuned, "--tuned", "tuning.json")[0], "all")

    def test_many_ranks_that_differ_hold_memory_and_start_cold(self):
        def lines(ranks):
            words = ["gather", "--ranks", ranks, "--clock", "unit", "--link", "ndr", "-b", "1M", "-e", "1M", "--algorithm", "binomial_tree"]
            memory = re.search("# Memory usage.*", self.bench(*words, "-M", "1").stdout)[0]
            done = self.bench(*words, "--cold").stdout
            first = re.search(r"the first operation took ([\d.]+) us", done)[1]
            return memory, first, [line.split()[6] for line in done.splitlines() if not line.startswith("#")][0]
        few, many = lines("512"), lines("1024")
        self.assertEqual(few[0], many[0])
        self.assertEqual((few[1], many[1]), (few[2], many[2]))

    def test_unit_time_needs_no_data_and_one_iteration(self):
        def context(*words):
            self.bench("all_reduce", "-b", "1K", "-e", "1K", "--clock", "unit", "--link", "ndr", *words, "--json", "b.json")
            file = json.loads((self.path / "b.json").read_text())
            entry = file["benchmarks"][0]
            return file["context"]["lockstep.device"], len(entry["samples_us"]), entry["wrong"]
        self.assertEqual(context(), ("none", 1, -1))
        self.assertEqual(context("-n", "3", "-w", "1"), ("none", 3, -1))
        self.assertEqual(context("-c", "1"), ("host", 1, 0))
        self.assertEqual(context("--buffers", "dirty"), ("host", 1, 0))
        self.assertEqual(context("--device", "host"), ("host", 1, 0))
        self.assertIn("-c 1", self.bench("all_reduce", "--clock", "unit", "--device", "none", "-c", "1", status=2).stderr)
        done = self.bench("all_reduce", "-b", "1K", "-e", "1K")
        self.assertIn("warm-up 5   iterations 20", done.stdout)

    def test_the_model_knows_nodes_or_is_marked(self):
        done = self.bench("all_reduce", "--ranks", "6", "--clock", "unit", "--link", "ndr", "-b", "1M", "-e", "1M", "--algorithm",
                          "double_binary_tree,torus")
        time, bound = [(line.split()[6], line.split()[14]) for line in done.stdout.splitlines() if not line.startswith("#")][0]
        self.assertTrue(bound.startswith("<=") and float(time) <= float(bound[2:]), done.stdout)
        done = self.bench("all_reduce", "--ranks", "64", "--clock", "unit", "--link", "dgx", "-b", "64K", "-e", "16M", "-f", "256",
                          "--algorithm", "all", "--json", "b.json")
        exact = set()
        for row in (line.split() for line in done.stdout.splitlines() if not line.startswith("#")):
            name, model = row[5], row[14]
            if not model.startswith("~"):
                self.assertEqual(row[6], model, row)
                exact.add(name)
        self.assertEqual(exact, {"ring", "segmented_ring", "recursive_doubling", "halving_doubling", "binomial_tree", "hierarchical", "torus"})
        for entry in json.loads((self.path / "b.json").read_text())["benchmarks"]:
            self.assertEqual(entry["model_is_exact"], float(entry["name"].split("/")[1] in exact))

    def test_auto_takes_the_fastest_on_nodes(self):
        for ranks, size in (("8", "1M"), ("64", "16M"), ("64", "4K")):
            with self.subTest(ranks=ranks, size=size):
                done = self.bench("all_reduce", "--ranks", ranks, "--clock", "unit", "--link", "dgx", "-b", size, "-e", size,
                                  "--algorithm", "auto,all")
                rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
                self.assertEqual(float(rows[0][6]), min(float(row[6]) for row in rows), done.stdout)

    def test_an_algorithm_that_cannot_run_is_skipped_with_the_reason(self):
        done = self.bench("all_gather", "--ranks", "3", "-b", "12", "-e", "12", "-n", "1", "--algorithm", "all")
        self.assertIn("# skipped: recursive_doubling: needs a power of two of ranks, there are 3", done.stdout)
        done = self.bench("all_gather", "--ranks", "3", "--algorithm", "recursive_doubling", status=2)
        self.assertIn("power of two", done.stderr)

    def test_auto_chooses_by_memory_model_or_measurement(self):
        def chosen(*words):
            done = self.bench("all_reduce", "-b", "64", "-e", "4M", "-i", "4194240", "-n", "2", "-w", "0", *words)
            return [line.split()[5] for line in done.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(chosen("--ranks", "3"), ["auto=direct"] * 2)
        slow = ["--ranks", "16", "--clock", "unit", "--link", "10gbe", "--device", "none"]
        self.assertEqual(chosen(*slow)[0], "auto=recursive_doubling")
        self.assertIn(chosen(*slow)[1], ("auto=segmented_ring", "auto=halving_doubling"))
        self.bench("all_reduce", "-b", "64", "-e", "4M", "-i", "4194240", "-n", "2", *slow, "--algorithm", "ring,binomial_tree", "--tune", "t.json")
        self.assertEqual(chosen(*slow, "--tuned", "t.json"), ["auto=binomial_tree", "auto=ring"])
        self.assertEqual(chosen("--ranks", "3", "--tuned", "t.json"), ["auto=direct"] * 2)
        self.bench("all_reduce", "-b", "64", "-e", "64", "-n", "1", "--ranks", "3", "--algorithm", "linear", "--tune", "t.json")
        self.assertEqual(chosen(*slow, "--tuned", "t.json"), ["auto=binomial_tree", "auto=ring"])
        self.assertEqual(chosen("--ranks", "3", "--tuned", "t.json"), ["auto=linear"] * 2)
        for content in ("", "[]", '{"schema": "lockstep.tuning/2"}', '{"schema": "lockstep.tuning/1"}',
                        '{"schema": "lockstep.tuning/1", "choices": [{"operation": "all_reduce"}]}',
                        '{"schema": "lockstep.tuning/1", "choices": [{"operation": "fly", "transport": "threads", "ranks": 2, '
                        '"from_bytes": 0, "algorithm": "ring"}]}'):
            (self.path / "bad.json").write_text(content)
            self.bench("all_reduce", "--tuned", "bad.json", status=2)

    def test_command_lines_of_nccl_tests(self):
        for line in ("all_reduce -b 8 -e 1K -f 2 -g 2", "all_reduce -b 8 -e 8K -f 2 -t 2 -g 2 -n 3 -w 1", "all_reduce -b 1K -e 4K -i 1K -g 2",
                     "all_reduce -b 1K -e 1K -d all -o all -g 2 -n 1", "all_reduce -b 4K -e 4K -d half -o max -g 2 -c 0",
                     "all_gather -b 8 -e 1K -f 2 -g 3", "reduce_scatter -b 8 -e 1K -f 2 -g 3 -d bfloat16", "broadcast -b 8 -e 1K -f 2 -g 3 -r 1",
                     "reduce -b 8 -e 1K -f 2 -g 3 -r 2 -o min", "gather -b 8 -e 1K -f 2 -g 2", "scatter -b 8 -e 1K -f 2 -g 2",
                     "all_to_all -b 8 -e 1K -f 2 -g 4", "send_recv -b 8 -e 1K -f 2 -g 2", "all_reduce --minbytes 8 --maxbytes 1K --stepfactor 2 --ngpus 2",
                     "all_reduce -b 1K -e 1K -n 2 -m 3 -g 2 -z 1", "all_reduce -b 1K -e 1K -g 2 -G 1 -C 1 -p 1 -R 1 -T 20",
                     "all_reduce -b 1k -e 2k -g 2 -a 1", "all_reduce -b 1K -e 1K -g 2 -J out.json"):
            with self.subTest(line=line):
                done = self.bench(*line.split())
                ranks = 4 if "-t 2" in line or "-g 4" in line else 3 if "-g 3" in line else 2
                self.assertIn(f"among {ranks} ranks", done.stdout)
                if "-c 0" in line:
                    self.assertIn("N/A", done.stdout)
        self.assertTrue((self.path / "out.json").exists())

    def test_one_gpu_for_each_rank_uses_nccl(self):
        library = PROGRAM.parent.parent / "lib"
        emulated = {"LOCKSTEP_CUDA_MODULE": str(library / "liblockstep_cuda_emulated.so"), "LOCKSTEP_EMULATOR_DEVICES": "2",
                    "LOCKSTEP_NCCL_MODULE": str(library / "liblockstep_nccl_emulated.so")}
        words = ("all_reduce", "--device", "cuda", "-b", "1K", "-e", "1K", "-n", "2", "--algorithm", "ring,direct,vendor")
        done = self.bench(*words, "-g", "2", "-G", "1", "-z", "1", environment=emulated)
        for line in ("among 2 ranks over nccl", "# library: NCCL ", "# warning: -G,--cudagraph has no effect",
                     "# warning: -z,--blocking has no effect", "# skipped: direct: needs ranks that share memory"):
            self.assertIn(line, done.stdout)
        rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual([(row[5], row[9], row[13]) for row in rows], [("ring", "0", "0"), ("vendor", "0", "0")])
        uneven = self.bench("all_to_all_v", *words[1:-1], "pairwise,linear,vendor", "-g", "2", "--skew", "zipf:2", environment=emulated)
        rows = [line.split() for line in uneven.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual([(row[5], row[9]) for row in rows], [("pairwise", "0"), ("linear", "0"), ("vendor", "0")])
        on_one = self.bench(*words, "-g", "3", environment=emulated).stdout
        self.assertIn("among 3 ranks over threads", on_one)
        self.assertNotIn("has no effect", on_one)

    def test_sharded_compares_strategies(self):
        done = self.bench("sharded", "--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--ranks", "2", "--steps", "2",
                          "--json", "s.json")
        result = json.loads((self.path / "s.json").read_text())
        entries = {entry["strategy"]: entry for entry in result["benchmarks"]}
        self.assertEqual(list(entries), ["ddp", "zero-1", "zero-2", "zero-3", "fsdp-none", "fsdp-backward-post", "fsdp-backward-pre",
                                         "fsdp-forward", "tp"])
        for name, entry in entries.items():
            self.assertIn(f"\n{name} ", done.stdout)
            self.assertEqual(entry["sent_bytes"], entry["expected_sent_bytes"])
            self.assertGreater(entry["step_seconds"], 0)
            for use, expected in entry["expected_peak_bytes"].items():
                self.assertEqual(entry["peak_bytes"][use], expected, (name, use))
        # A model of 106304 parameters in f32: ZeRO's formulas, and FSDP's volume over DDP's.
        self.assertEqual([entries[f"zero-{stage}"]["paper_bytes"] for stage in (1, 2, 3)], [106304 * n for n in (12, 10, 8)])
        compared = subprocess.run([PROGRAM, "compare", "s.json", "s.json"], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(compared.returncode, 0, compared.stderr)

    def test_simulated_sharding_finds_crossovers(self):
        done = self.bench("sharded", "--simulate", "--model", "gpt2", "--dtype", "bf16", "--ranks", "8", "--strategy", "ddp,fsdp-forward",
                          "--json", "s.json")
        (crossover,) = json.loads((self.path / "s.json").read_text())["crossovers"]
        self.assertEqual((crossover["strategy"], crossover["reference"], crossover["is_faster_above"]), ("fsdp-forward", "ddp", True))
        self.assertIn(f"# 8 ranks: fsdp-forward is faster than ddp above {crossover['bytes_per_s'] / 1e9:.3g} GB/s", done.stdout)

    def test_sharded_plans_of_thousands_of_ranks_are_counted(self):
        self.bench("sharded", "--device", "none", "--strategy", "zero-2,fsdp-none", "--ranks", "4096", "--json", "s.json")
        zero, fsdp = json.loads((self.path / "s.json").read_text())["benchmarks"]
        self.assertNotIn("step_seconds", zero)
        self.assertEqual(fsdp["whole_blocks"], 1)
        self.assertGreater(sum(fsdp["sent_bytes"].values()), sum(zero["sent_bytes"].values()))

    def test_model_measures_products_and_steps(self):
        done = self.bench("model", "--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "2", "--steps",
                          "3", "--threads", ",".join(map(str, THREADS)), "--json", "m.json")
        entries = {entry["name"].split("/iterations")[0]: entry
                   for entry in json.loads((self.path / "m.json").read_text())["benchmarks"]}
        for threads in THREADS:
            self.assertIn(f"{threads} thread", done.stdout)
            step = next(entry for name, entry in entries.items() if name.startswith("step/") and name.endswith(f"threads:{threads}"))
            self.assertGreater(step["share_of_product_rate"], 0)
            self.assertEqual(sum(name.startswith("product/") and name.endswith(f"threads:{threads}") for name in entries), 15)

    def test_bad_flags_are_refused(self):
        for words in (["all_reduce", "-b", "0"], ["all_reduce", "-b", "1T"], ["all_reduce", "-b", "8", "-e", "4"],
                      ["all_reduce", "-f", "1"], ["all_reduce", "-n", "0"], ["all_reduce", "-w", "-1"],
                      ["all_reduce", "-d", "i7"], ["all_reduce", "-r", "2"], ["all_reduce", "--buffers", "cold"],
                      ["all_reduce", "-m", "0"], ["all_reduce", "--repetitions", "0"], ["all_reduce", "-a", "4"],
                      ["all_reduce", "--device", "none"], ["all_reduce", "--device", "gpu"],
                      ["all_reduce", "-i", "-1"], ["all_reduce", "--clock", "sun"], ["all_reduce", "--link", "ndr"],
                      ["all_reduce", "--clock", "unit", "--link", "alpha=fast"], ["all_reduce", "--clock", "unit", "--link", "x"],
                      ["all_reduce", "--algorithm", "direct", "--clock", "unit"], ["all_reduce", "-o", "xor"], ["all_reduce", "--algorithm", "magic"],
                      ["all_reduce", "--ranks", "0"], ["all_reduce", "--clock", "unit", "-b", "1K", "-e", "1K", "--timeout", "0"],
                      ["all_reduce", "--json", "no/such/folder/b.json"], ["all_reduce", "--magic"],
                      ["sharded", "--strategy", "zero-4"], ["sharded", "--ranks", "0"], ["sharded", "--simulate", "--steps", "3"],
                      ["sharded", "--simulate", "--device", "none"], ["sharded", "--device", "none", "--link", "ndr"],
                      ["sharded", "--tflops", "3"], ["sharded", "--clock", "unit"], ["sharded", "--clock", "wall", "--link", "ndr"],
                      ["sharded", "--device", "none", "--strategy", "tp", "--ranks", "5"], ["sharded", "--micro-batch-size", "0"],
                      ["model", "--model", "huge"], ["model", "--threads", "0"], ["model", "--steps", "0"],
                      ["model", "--dtype", "i8"], ["model", "--json", "/proc/m.json"], ["magic"], []):
            with self.subTest(words=words):
                self.assertNotIn("terminate called", self.bench(*words, status=2).stderr)
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
