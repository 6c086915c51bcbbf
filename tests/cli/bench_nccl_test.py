"""lockstep bench as nccl-tests: its table, its flags and its environment variables.

python3 bench_nccl_test.py PROGRAM
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).absolute()
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "all_to_all_v", "send_recv",
              "barrier")
UNIT = ("--clock", "unit", "--link", "alpha=1us,beta=1GB/s")

# As programs read the logs of nccl-tests.
PLACEMENT = r" +(\d[\d.e+]*) +(\d[\d.e+]*) +(\d[\d.e+]*) +(\d+|N/A)"
ROW = re.compile(r"^ +(\d+) +(\d+) +(\w+) +(\w+) +(-?\d+)" + PLACEMENT + PLACEMENT + "$", re.MULTILINE)
AVERAGE = re.compile(r"^# Avg bus bandwidth    : (\S+) (OK|FAILED|)$", re.MULTILINE)


class BenchNccl(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0, environment=None):
        done = subprocess.run([PROGRAM, "bench", *words], cwd=self.path, capture_output=True, text=True, timeout=60,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def entries(self, name="b.json"):
        return json.loads((self.path / name).read_text())["benchmarks"]

    def test_table_of_nccl_tests(self):
        printed = self.bench("all_reduce", "--ranks", "3", "-b", "4", "-e", "4M", "-f", "1024", "-n", "3", "-d", "half", "-o", "max",
                             "--table", "nccl-tests", "--output_file", "b.json").stdout
        lines = printed.splitlines()
        for line in ("# nThread 3 nGpus 1 minBytes 4 maxBytes 4194304 step: 1024(factor) warmup iters: 5 iters: 3 agg iters: 1 "
                     "validation: 1 graph: 0", "# Using devices", "# Collective test starting: all_reduce_perf",
                     "# Collective test concluded: all_reduce_perf", "# Out of bounds values : 0 OK",
                     "#" + " " * 62 + "out-of-place" + " " * 23 + "in-place" + " " * 10,
                     "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
                     "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         "):
            self.assertIn(line, lines)
        devices = re.findall(r"^#  Rank +(\d+) Group +0 Pid +(\d+) on +\S+ device +0 \[\S+\] host$", printed, re.MULTILINE)
        self.assertEqual([rank for rank, _ in devices], ["0", "1", "2"])
        rows = ROW.findall(printed)
        self.assertEqual([row[:5] for row in rows], [(str(size), str(size // 2), "half", "max", "-1") for size in (4, 4096, 4194304)])
        self.assertEqual({len(line) for line in lines if ROW.match(line)}, {len(lines[lines.index(next(filter(ROW.match, lines))) - 1]) - 1})
        entries = self.entries()
        for row, both in zip(rows, zip(entries[::2], entries[1::2]), strict=True):
            for entry, (time, algbw, busbw, wrong) in zip(both, (row[5:9], row[9:13])):
                for number, value in ((time, entry["p50_us"]), (algbw, entry["algbw_gb_per_s"]), (busbw, entry["busbw_gb_per_s"])):
                    digits = len(number.partition(".")[2])
                    self.assertAlmostEqual(float(number), value, delta=0.51 * 10 ** -digits)
                self.assertEqual(wrong, "0")
        mean = sum(entry["busbw_gb_per_s"] for entry in entries) / len(entries)
        self.assertAlmostEqual(float(AVERAGE.search(printed)[1]) / mean, 1, delta=1e-5)

    def test_table_of_nccl_tests_in_special_cases(self):
        printed = self.bench("broadcast", "--ranks", "4", "-b", "1K", "-e", "1K", "-r", "2", "-d", "bf16", "--table", "nccl-tests", *UNIT).stdout
        self.assertEqual([row[:5] + row[8:9] for row in ROW.findall(printed)], [("1024", "512", "bfloat16", "none", "2", "N/A")])
        printed = self.bench("all_reduce", "--ranks", "2", "-b", "1G", "-e", "1G", "--table", "nccl-tests", "--clock", "unit", "--link",
                             "alpha=1us,beta=1MB/s").stdout
        self.assertEqual(ROW.findall(printed)[0][5], "1.1e+09")
        printed = self.bench("all_to_all", "-b", "64", "-e", "64", "-n", "1", "--table", "nccl-tests").stdout
        self.assertRegex(printed, r"(?m)^ +64 +16 +float +none +-1 +\S+ +\S+ +\S+ +0 +N/A +N/A +N/A +N/A$")
        for words in (["--algorithm", "ring,linear"], ["--algorithm", "all"], ["--peer", "gloo"], ["--tune", "t.json"]):
            self.assertIn("--table nccl-tests with several algorithms", self.bench("all_reduce", "--table", "nccl-tests", *words, status=2).stderr)
        self.assertIn("--table 'nccl'", self.bench("all_reduce", "--table", "nccl", status=2).stderr)

    def test_least_average_bandwidth(self):
        """As nccl-tests: the average may miss it by a tenth. Two ranks need 1 + 1 us for half of 2,000 B each way."""
        words = ("all_reduce", "--ranks", "2", "-b", "2000", "-e", "2000", "--algorithm", "ring", *UNIT, "--json", "b.json")
        mean = float(AVERAGE.search(self.bench(*words, "--table", "nccl-tests").stdout)[1])
        self.assertAlmostEqual(mean, 0.5, 6)
        self.assertNotIn("lockstep.min_busbw_gb_per_s", json.loads((self.path / "b.json").read_text())["context"])
        for least, verdict in (("0", "OK"), ("0.55", "OK"), ("0.56", "FAILED"), ("", None)):
            for table in ("nccl-tests", "lockstep"):
                done = self.bench(*words, "--table", table, environment={"NCCL_TESTS_MIN_BW": least}, status=3 if verdict == "FAILED" else 0)
                self.assertEqual(re.search("(?m)^# Avg bus bandwidth    : 0.5 ?(.*)$", done.stdout)[1] or None, verdict)
                context = json.loads((self.path / "b.json").read_text())["context"]
                self.assertEqual(context.get("lockstep.min_busbw_gb_per_s"), least or None)
        for bad in ("fast", "1GB", "-1", "nan", "1e999"):
            done = self.bench(*words, environment={"NCCL_TESTS_MIN_BW": bad}, status=2)
            self.assertIn(f"NCCL_TESTS_MIN_BW='{bad}'", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_checks_may_be_many(self):
        """A fault that strikes a later check is found only if there is one. Of both placements, an operation is checked and measured."""
        def finds(checks, operation):
            done = subprocess.run([PROGRAM, "bench", "broadcast", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1", "--algorithm", "binomial_tree",
                                   "-c", checks, "--fault", f"rank=0,op={operation},kind=nan", *UNIT], cwd=self.path, capture_output=True, text=True,
                                  timeout=60)
            self.assertIn(done.returncode, (0, 1, 2), done.stderr)
            return done.returncode == 1
        found = {checks: sum(finds(checks, operation) for operation in range(12)) for checks in ("1", "3")}
        self.assertEqual(found["1"] * 3, found["3"])
        self.assertIn("-c -1", self.bench("all_reduce", "-c", "-1", status=2).stderr)

    def test_cycles_print_rows_each(self):
        printed = self.bench("all_reduce", "-b", "8", "-e", "64", "-f", "8", "-n", "3", "-N", "2", "--table", "nccl-tests", "--json", "b.json").stdout
        self.assertEqual(re.findall(r"(?m)^# cycle (\d)", printed), ["1", "2"])
        self.assertEqual([row[0] for row in ROW.findall(printed)], ["8", "64", "8", "64"])
        entries = [entry for entry in self.entries() if entry["run_type"] == "iteration"]
        self.assertEqual([entry["repetition_index"] for entry in entries], [0, 1] * 4)
        for row, entry in zip(ROW.findall(printed), [entries[i] for i in (0, 4, 1, 5)], strict=True):
            self.assertAlmostEqual(float(row[5]), entry["p50_us"], delta=0.006)
        for words in (["--json", "b.json"], ["--tune", "t.json"], ["--trace", "t.json"], ["--peer", "gloo"]):
            self.assertIn(f"-N 0 with {words[0]}", self.bench("all_reduce", "-N", "0", *words, status=2).stderr)
        self.assertIn("excludes --run_cycles", self.bench("all_reduce", "-N", "2", "--repetitions", "2", status=2).stderr)
        self.assertIn("-N -1", self.bench("all_reduce", "-N", "-1", status=2).stderr)

    def test_endless_cycles_end_at_a_wrong_result(self):
        done = self.bench("broadcast", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1", "-w", "0", "-N", "0", "--algorithm", "binomial_tree",
                          "--fault", "rank=0,op=300,kind=nan", "--device", "host", *UNIT, "-c", "1", status=1)
        self.assertRegex(done.stdout, r"(?s)# cycle 10\n.*# Out of bounds values : [1-9]")

    def test_split_runs_the_operation_in_all_groups_at_once(self):
        """Groups of the same size take as long as a world of that size alone, and as the closed form says."""
        sizes = ("-b", "4K", "-e", "64K", "-f", "16", "-d", "double", "-c", "1")
        self.bench("all_reduce", "--ranks", "2", "--algorithm", "all", *sizes, *UNIT, "--json", "alone.json")
        alone = {entry["name"]: entry for entry in self.entries("alone.json")}
        groups = {"mod3": [[0, 3], [1, 4], [2, 5]], "div2": [[0, 1], [2, 3], [4, 5]], "or1": [[0, 1], [2, 3], [4, 5]]}
        for name, flag, environment in (("mod3", "MOD 3", {"NCCL_TESTS_SPLIT": "XOR"}), ("div2", "/0b10", {}),
                                        ("or1", "", {"NCCL_TESTS_SPLIT": "or 0x1"}), ("mod3", "", {"NCCL_TESTS_SPLIT": "%3"})):
            printed = self.bench("all_reduce", "--ranks", "6", "--algorithm", "all", *sizes, *UNIT, "--json", "b.json",
                                 *(["--split", flag] if flag else []), environment=environment).stdout
            self.assertIn(f"3 groups of 2 ranks at once: {', '.join(' '.join(map(str, group)) for group in groups[name])}\n", printed)
            self.assertIn("# Out of bounds values : 0 OK", printed)
            file = json.loads((self.path / "b.json").read_text())
            self.assertEqual(file["groups"], groups[name])
            self.assertEqual(len(file["ranks"]), 6)
            together = {entry["name"]: entry for entry in file["benchmarks"]}
            self.assertEqual({key.replace(f"/split:{name}", "") for key in together}, set(alone))
            exact = 0
            for key, entry in together.items():
                expected = alone[key.replace(f"/split:{name}", "")]
                for value in ("ranks", "bytes", "p50_us", "model_us", "busbw_gb_per_s", "wrong"):
                    self.assertAlmostEqual(entry[value], expected[value], 9, key)
                if entry["model_is_exact"]:
                    self.assertAlmostEqual(entry["model_us"], entry["p50_us"], 9, key)
                    exact += 1
            self.assertGreaterEqual(exact, 8)
            medians = {key.split("/iterations")[0]: entry["p50_us"] for key, entry in together.items()}
            for times in file["rank_times"]:
                self.assertEqual([round(us - medians[times["name"]], 9) for us in times["group_us"]], [0] * 3)

    def test_split_by_nodes(self):
        """Each of two ranks sends half of 8,000 B twice: inside nodes in 4 x 2, between nodes in 40 x 2 us, and no latency."""
        nodes = ("--clock", "unit", "--link", "alpha=0us,beta=0.1GB/s,node=2,node-alpha=0us,node-beta=1GB/s")
        words = ("all_reduce", "-b", "8000", "-e", "8000", "--algorithm", "ring", *nodes, "--json", "b.json")
        for split, groups, microseconds in (("node", [[0, 1], [2, 3]], 8), ("rail", [[0, 2], [1, 3]], 80), ("DIV 2", [[0, 1], [2, 3]], 8)):
            self.bench(*words, "--ranks", "4", "--split", split)
            self.assertEqual(json.loads((self.path / "b.json").read_text())["groups"], groups)
            self.assertAlmostEqual(self.entries()[0]["p50_us"], microseconds, 6)
            self.assertAlmostEqual(self.entries()[0]["model_us"], microseconds, 6)
        self.bench(*words, "--ranks", "8", "--split", "leaf 2")
        self.assertEqual(json.loads((self.path / "b.json").read_text())["groups"], [[0, 1, 2, 3], [4, 5, 6, 7]])

    def test_split_in_the_table_of_nccl_tests(self):
        words = ("broadcast", "--ranks", "4", "-b", "64", "-e", "64", "-n", "2", "-r", "1", "--table", "nccl-tests")
        printed = self.bench(*words, environment={"NCCL_TESTS_SPLIT_MASK": "1", "NCCL_TESTS_SPLIT": "DIV 2"}).stdout
        self.assertEqual(re.findall(r"(?m)^#  Rank +(\d) Group +(\d) Pid", printed), [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")])
        self.assertEqual([row[4] for row in ROW.findall(printed)], ["1"])
        printed = self.bench(*words, environment={"NCCL_TESTS_SPLIT_MASK": "0x0"}).stdout
        self.assertNotIn("groups", printed)
        self.assertEqual(set(re.findall(r"(?m)^#  Rank +\d Group +(\d) Pid", printed)), {"0"})

    def test_split_into_what_is_no_groups(self):
        words = ("all_reduce", "--ranks", "4", "-b", "64", "-e", "64")
        for bad in ("MOD 0", "DIV 0", "MOD", "XOR 3", "MOD 8x", "MOD -1", "MOD 010", "AND 99999999999", "rail 2", "leaf", "leaf 0", "MOD 0x0x2"):
            self.assertIn(f"--split '{bad}'", self.bench(*words, "--split", bad, status=2).stderr)
            if not bad.startswith("leaf"):
                self.assertIn(f"NCCL_TESTS_SPLIT '{bad}'", self.bench(*words, environment={"NCCL_TESTS_SPLIT": bad}, status=2).stderr)
        for bad in ("0xg", "0x0x1", "-1", "MOD 2"):
            self.assertIn(f"NCCL_TESTS_SPLIT_MASK '{bad}'", self.bench(*words, environment={"NCCL_TESTS_SPLIT_MASK": bad}, status=2).stderr)
        self.assertIn("--split 'MOD 3' of 4 ranks: groups of 1 and of 2 ranks", self.bench(*words, "--split", "MOD 3", status=2).stderr)
        self.assertIn("--split 'rail' of 4 ranks", self.bench(*words, "--split", "rail", status=2).stderr)
        self.assertIn("-r 2 in a group of 2 ranks", self.bench("broadcast", *words[1:], "-r", "2", "--split", "MOD 2", status=2).stderr)
        self.assertIn("with --peer", self.bench(*words, "--split", "MOD 2", "--peer", "openmpi", status=2).stderr)

    def test_flags_without_effect_say_so(self):
        flags = ("-z", "-G", "-C", "-p", "-R", "-x", "-D", "-V", "-y", "-K")
        printed = self.bench("all_reduce", "-b", "8", "-e", "8", "-n", "3", *(word for flag in flags for word in (flag, "1"))).stdout
        self.assertEqual({flag for flag, reason in re.findall(r"(?m)^# warning: (-\w),--\w+ has no effect: (.+)$", printed)}, set(flags))
        self.assertNotIn("has no effect", self.bench("all_reduce", "-b", "8", "-e", "8", "-n", "3", "-z", "0", "-I", "1", "-K", "1").stdout)
        for flag in ("-I", "-S", "-M"):
            self.assertIn(f"{flag} 2", self.bench("all_reduce", flag, "2", status=2).stderr)

    def test_statistics_of_iterations(self):
        words = ("all_reduce", "-b", "4K", "-e", "4K", "-n", "110", "-w", "0", "--repetitions", "2", "-I", "1", "--json", "b.json")
        for skipped, table in ((0, "lockstep"), (9, "nccl-tests")):
            printed = self.bench(*words, "-K", str(skipped), "--table", table).stdout
            lines = printed.splitlines()
            names = next(line for line in lines if re.match("# +size ", line)).split()[1:]
            (row,) = [line.split() for line in lines if not line.startswith("#")]
            self.assertEqual(len(names), len(row))
            entries = [entry for entry in self.entries() if entry["run_type"] == "iteration"]
            for placement, chosen in enumerate((entries[:2], entries[2:])):
                samples = sorted(sample for entry in chosen for sample in entry["samples_us"][skipped:])
                mean = sum(samples) / len(samples)
                deviation = (sum((sample - mean) ** 2 for sample in samples) / len(samples)) ** 0.5
                expected = {"min": samples[0], "max": samples[-1], "p90": samples[int(0.9 * (len(samples) - 1) + 0.5)],
                            "p99": samples[int(0.99 * (len(samples) - 1) + 0.5)], "cv": 100 * deviation / mean}
                columns = {name.strip("i_%"): i for i, name in enumerate(names) if names[:i].count(name) == placement}
                self.assertEqual("p90" in columns, table == "lockstep")
                for name in set(expected) & set(columns):
                    self.assertAlmostEqual(float(row[columns[name]]), expected[name], delta=0.0051, msg=f"{table} {placement} {name}")
        printed = self.bench("all_reduce", "-b", "64", "-e", "64", "-n", "9", "-I", "1").stdout
        self.assertRegex(printed, r"(?m)^ +64 .* - +- .* - +- ")
        self.assertIn("-K 3", self.bench("all_reduce", "-n", "3", "-I", "1", "-K", "3", status=2).stderr)

    def test_times_of_day(self):
        for table in ("lockstep", "nccl-tests"):
            printed = self.bench("all_reduce", "-b", "8", "-e", "64", "-f", "8", "-n", "1", "-S", "1", "--table", table, *UNIT).stdout
            self.assertRegex(printed, r"(?m)^# +size .* timestamp$")
            stamps = re.findall(r"(?m)^ +\d.* (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)$", printed)
            self.assertEqual(len(stamps), 2)
            for stamp in stamps:
                self.assertLess(abs(time.mktime(time.strptime(stamp, "%Y-%m-%d %H:%M:%S")) - time.time()), 60)

    def test_memory(self):
        """Input and output; the algorithm receives into as much as either. The links, measured first in real time, count for nothing."""
        for more in UNIT, ("--clock", "wall"):
            printed = self.bench("all_reduce", "--ranks", "2", "-b", "16K", "-e", "64K", "-f", "4", "--algorithm", "recursive_doubling", "-c", "0",
                                 "-M", "1", "--device", "host", *more, "--json", "b.json").stdout
            self.assertEqual(json.loads((self.path / "b.json").read_text())["memory"],
                             {"initial_bytes": 0, "buffer_bytes": 128 << 10, "peak_bytes": 192 << 10})
            self.assertIn("# Memory usage         : Initialization 0.00 B | User-Allocated 128 KB | Collective 64.0 KB | Total  192 KB\n", printed)
        self.bench("all_reduce", "-b", "64K", "-e", "64K", "--algorithm", "recursive_doubling", "-c", "0", "-M", "1", "--device", "host", "-u", "1024",
                   *UNIT, "--json", "b.json")
        self.assertEqual(json.loads((self.path / "b.json").read_text())["memory"]["peak_bytes"], 192 + 2 * 4 << 10)
        self.assertNotIn("Memory", self.bench("all_reduce", "-b", "8", "-e", "8", "-M", "0").stdout)

    def test_unaligned_buffers(self):
        for operation in OPERATIONS:
            printed = self.bench(operation, "--ranks", "3", "-b", "600", "-e", "6000", "-f", "10", "-n", "1", "-w", "0", "-d", "all", "--algorithm",
                                 "all", "-u", "3", "--json", "b.json").stdout
            self.assertIn("# Out of bounds values : 0 OK", printed)
            self.assertEqual({"/unalign:3" in entry["name"] for entry in self.entries()}, {True})
        self.assertIn("-u -1", self.bench("all_reduce", "-u", "-1", status=2).stderr)

    def test_types_of_8_bits(self):
        """Sums are exact for any number of ranks; more than four of them take turns in giving numbers."""
        names = {"f8e4m3": ["f8e4m3"], "f8e5m2": ["f8e5m2"], "fp8_e4m3": ["f8e4m3"], "fp8_e5m2": ["f8e5m2"], "fp8": ["f8e4m3", "f8e5m2"]}
        for name, types in names.items():
            printed = self.bench("all_reduce", "--ranks", "3", "-b", "64", "-e", "64", "-n", "1", "-w", "0", "-d", name, "--table", "nccl-tests", "--json",
                                 "b.json").stdout
            self.assertEqual([row[:3] for row in ROW.findall(printed)], [("64", "64", kind) for kind in types])
            self.assertEqual([re.search("type:([^/]+)", entry["name"])[1] for entry in self.entries()], [kind for kind in types for _ in range(2)])
        for ranks in "5", "32":
            for operation in "all_reduce", "reduce", "reduce_scatter":
                for kind in "fp8", "bf16":
                    printed = self.bench(operation, "--ranks", ranks, "-b", "1K", "-e", "1K", "-d", kind, "-o", "all", "-c", "2", *UNIT).stdout
                    self.assertIn("# Out of bounds values : 0 OK", printed, (operation, ranks, kind))
        row = self.bench("all_reduce", "--ranks", "2", "-b", "1K", "-e", "1K", "-d", "f8e5m2", *UNIT).stdout.splitlines()[-3].split()
        self.assertEqual(row[:5], ["1024", "1024", "f8e5m2", "sum", "-1"])
        done = self.bench("all_reduce", "-d", "fp4", status=2)
        self.assertIn("unknown type 'fp4'", done.stderr)
        self.assertIn("f8e4m3, f8e5m2", done.stderr)
        for words in (["bench", "tp", "--dtype"], ["bench", "attention", "--lengths", "16", "--dtype"], ["train", "ddp", "--dtype"],
                      ["train", "ddp", "--reduce-dtype"]):
            done = subprocess.run([PROGRAM, *words, "f8e4m3"], cwd=self.path, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, words)
            self.assertRegex(done.stderr, r"dtype f8e4m3; choose .*bf16 or f16")

    def test_a_wrong_element_of_8_bits_is_found(self):
        for kind in "f8e4m3", "f8e5m2":
            found = set()
            for operation in range(4):
                done = subprocess.run([PROGRAM, "bench", "broadcast", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1", "--algorithm", "binomial_tree",
                                       "-d", kind, "-c", "1", "--fault", f"rank=0,op={operation},kind=nan", *UNIT], cwd=self.path, capture_output=True,
                                      text=True, timeout=60)
                found.add(done.returncode)
            self.assertIn(1, found, kind)

    def test_several_communicators_at_once(self):
        """In a ring of three, a link carries 4 x 2,000 B of each communicator one after another, and the latency shows once."""
        words = ("all_reduce", "--ranks", "3", "-b", "6000", "-e", "6000", "--algorithm", "ring", *UNIT, "-c", "2", "--json", "b.json")
        for number, microseconds in ((1, 12), (2, 17), (3, 25)):
            printed = self.bench(*words, "--communicators", str(number)).stdout
            self.assertIn("# Out of bounds values : 0 OK", printed)
            self.assertEqual(f"# communicators: {number} of the same ranks" in printed, number > 1)
            for entry in self.entries():
                self.assertEqual((f"/communicators:{number}" in entry["name"], entry.get("communicators")), (number > 1, number if number > 1 else None))
                self.assertAlmostEqual(entry["p50_us"], microseconds, 6)
                self.assertAlmostEqual(entry["algbw_gb_per_s"], number * 6000 / microseconds / 1e3, 6)
                self.assertEqual(entry["model_us"] > 0, number == 1)
        for operation in OPERATIONS:
            printed = self.bench(operation, "--ranks", "3", "-b", "600", "-e", "6000", "-f", "10", "-n", "2", "-w", "0", "--algorithm", "all",
                                 "--communicators", "3", "--buffers", "dirty").stdout
            self.assertIn("# Out of bounds values : 0 OK", printed)
        printed = self.bench("all_reduce", "--ranks", "4", "--split", "MOD 2", "--communicators", "2", "-b", "1K", "-e", "1K", "-n", "2").stdout
        self.assertIn("# Out of bounds values : 0 OK", printed)
        done = self.bench("all_reduce", "--communicators", "3", "-b", "1K", "-e", "1K", "-n", "1", "--algorithm", "ring", "--fault", "rank=1,op=4,kind=throw",
                          "--timeout", "20", status=4)
        self.assertIn("planted fault", done.stderr)
        for words, part in ((["--communicators", "0"], "--communicators 0; use a number from 1 to 64"),
                            (["--communicators", "2", "--peer", "gloo"], "--communicators with --peer"),
                            (["--communicators", "2", "--tune", "t.json"], "--communicators with --tune")):
            self.assertIn(part, self.bench("all_reduce", *words, status=2).stderr)

    def test_blocks_that_lie_apart(self):
        for operation in OPERATIONS:
            printed = self.bench(operation, "--ranks", "3", "-b", "60", "-e", "6000", "-f", "10", "-n", "2", "-w", "0", "-d", "all", "--algorithm", "all",
                                 "--blocks", "2:5", "-u", "1", "--buffers", "dirty", "--json", "b.json").stdout
            self.assertIn("# Out of bounds values : 0 OK", printed)
            self.assertIn("# blocks: 2 elements, from one begin to the next 5; packed and unpacked within the time", printed)
            self.assertEqual({"/blocks:2of5" in entry["name"] for entry in self.entries()}, {True})
        for text in "2", "2:", ":2", "0:2", "3:2", "2:1000001", "a:b", "1:2:3", "-1:2", "1: 2":
            self.assertIn(f"--blocks '{text}'; give the elements", self.bench("all_reduce", "--blocks=" + text, status=2).stderr)
        for words, part in ((UNIT, "--blocks with --device none"), (["--peer", "gloo"], "--blocks with --peer"),
                            (["--tune", "t.json"], "--blocks with --tune")):
            self.assertIn(part, self.bench("all_reduce", "--blocks", "1:2", *words, status=2).stderr)

    def test_cold_start(self):
        """Only messages take time here, so that the first operation takes as long as the others."""
        words = ("all_reduce", "--ranks", "4", "-b", "4K", "-e", "64K", "-f", "16", "-m", "2", "--algorithm", "ring", "--json", "b.json")
        for more in ([*UNIT], [*UNIT, "-c", "1"]):
            printed = self.bench(*words, "--cold", *more).stdout
            cold = float(json.loads((self.path / "b.json").read_text())["context"]["lockstep.cold_start_us"])
            self.assertAlmostEqual(cold, self.entries()[0]["p50_us"], 6)
            self.assertIn(f"# cold start: the first operation took {cold:.2f} us\n", printed)
        self.assertNotIn("cold", self.bench(*words).stdout)
        self.assertNotIn("lockstep.cold_start_us", json.loads((self.path / "b.json").read_text())["context"])
        self.assertGreater(float(re.search(r"cold start: .* took (\S+) us", self.bench(*words, "--cold").stdout)[1]), 0)

    def test_all_roots(self):
        for word in "all", "-1":
            printed = self.bench("reduce", "--ranks", "3", "-b", "8", "-e", "64", "-f", "8", "-n", "1", "-r", word, "--table", "nccl-tests", "--json",
                                 "b.json").stdout
            self.assertEqual([(row[4], row[0]) for row in ROW.findall(printed)], [(root, size) for root in "012" for size in ("8", "64")])
            self.assertEqual({re.search("/root:(.)", entry["name"])[1] for entry in self.entries()}, set("012"))
        printed = self.bench("broadcast", "--ranks", "4", "--split", "MOD 2", "-b", "8", "-e", "8", "-n", "1", "-r", "all", "--table", "nccl-tests").stdout
        self.assertEqual([row[4] for row in re.findall(r"(?m)^ +(\d+) +(\d+) +(\w+) +(\w+) +(\d) ", printed)], ["0", "1"])
        self.assertIn("-r,--root has no effect", self.bench("all_reduce", "-b", "8", "-e", "8", "-r", "all").stdout)
        for bad in "x", "1.5", "2":
            self.assertIn("-r ", self.bench("reduce", "-r", bad, status=2).stderr)
        self.assertIn("--tune with -r all", self.bench("reduce", "-r", "all", "--tune", "t.json", status=2).stderr)

    def test_scaled_sums(self):
        for operation in "all_reduce", "reduce", "reduce_scatter":
            printed = self.bench(operation, "--ranks", "3", "-b", "600", "-e", "600", "-n", "1", "-d", "all", "-o", "mulsum", "--algorithm", "all", "-c", "2",
                                 "--json", "b.json").stdout
            self.assertIn("# Out of bounds values : 0 OK", printed)
            self.assertEqual({re.search("/redop:([^/]+)", entry["name"])[1] for entry in self.entries()}, {"mulsum"})
        printed = self.bench("all_reduce", "-b", "8", "-e", "8", "-n", "1", "-o", "all", "--table", "nccl-tests").stdout
        self.assertEqual([row[3] for row in ROW.findall(printed)], ["sum", "prod", "min", "max", "avg", "mulsum"])
        self.assertIn("# Out of bounds values : 0 OK", self.bench("broadcast", "-b", "8", "-e", "8", "-n", "1", "-o", "mulsum").stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
