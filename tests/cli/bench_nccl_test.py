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
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).absolute()
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
                             "--table", "nccl-tests", "--json", "b.json").stdout
        lines = printed.splitlines()
        for line in ("# nThread 3 nGpus 1 minBytes 4 maxBytes 4194304 step: 1024(factor) warmup iters: 5 iters: 3 agg iters: 1 "
                     "validation: 1 graph: 0", "# Using devices", "# Collective test starting: all_reduce_perf",
                     "# Collective test concluded: all_reduce_perf", "# Out of bounds values : 0 OK",
                     "#" + " " * 63 + "out-of-place" + " " * 23 + "in-place" + " " * 10,
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
