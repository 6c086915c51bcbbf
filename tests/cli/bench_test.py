"""lockstep bench: its table, its files, and what it refuses.

python3 bench_test.py PROGRAM SOURCE_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
GOLDEN = SOURCE / "tests" / "golden" / "tiny"
# The thread sanitizer's preset allows OpenMP one thread.
THREADS = range(1, 1 + min(2, len(os.sched_getaffinity(0)), int(os.environ.get("OMP_THREAD_LIMIT", 2))))


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0):
        done = subprocess.run([PROGRAM, "bench", *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_all_reduce_writes_what_it_prints(self):
        done = self.bench("all_reduce", "--ranks", "3", "-b", "4", "-e", "4K", "-f", "32", "-n", "3", "--json", "b.json")
        entries = json.loads((self.path / "b.json").read_text())["benchmarks"]
        rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual([int(row[0]) for row in rows], [4, 128, 4096])
        for row, (out_of_place, in_place) in zip(rows, zip(entries[::2], entries[1::2]), strict=True):
            for entry, (time, algbw, busbw, wrong) in ((out_of_place, row[4:8]), (in_place, row[8:12])):
                self.assertAlmostEqual(entry["p50_us"], float(time), delta=0.006)
                self.assertEqual((entry["bytes"], entry["wrong"], wrong), (int(row[0]), 0, "0"))
                self.assertAlmostEqual(entry["algbw_gb_per_s"], entry["bytes"] / entry["p50_us"] / 1e3, delta=1e-9)
                self.assertAlmostEqual(entry["busbw_gb_per_s"], entry["algbw_gb_per_s"] * 2 * 2 / 3, delta=1e-9)
                self.assertAlmostEqual(entry["busbw_gb_per_s"], float(busbw), delta=0.006)
                self.assertLessEqual(entry["min_us"], entry["p50_us"])

    def test_every_type_and_reduction_is_right(self):
        for dtype in ("f32", "f64", "i32", "u32", "i64", "u64"):
            for op in ("sum", "prod", "min", "max", "avg"):
                with self.subTest(dtype=dtype, op=op):
                    self.bench("all_reduce", "--ranks", "3", "-b", "1K", "-e", "1K", "-n", "1", "-w", "0", "-d", dtype, "-o", op)

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
                      ["all_reduce", "-d", "bf16"], ["all_reduce", "-o", "xor"], ["all_reduce", "--algorithm", "magic"],
                      ["all_reduce", "--ranks", "0"], ["all_reduce", "--json", "no/such/folder/b.json"], ["all_reduce", "--magic"],
                      ["model", "--model", "huge"], ["model", "--threads", "0"], ["model", "--steps", "0"],
                      ["model", "--dtype", "i8"], ["model", "--json", "/proc/m.json"], ["magic"], []):
            with self.subTest(words=words):
                self.assertNotIn("terminate called", self.bench(*words, status=2).stderr)
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
