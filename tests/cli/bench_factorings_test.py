"""lockstep bench 3d: its table, its words, its file, and the input it refuses.

python3 bench_factorings_test.py PROGRAM
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv[1])
AXES = ("tp", "cp", "pp", "dp")
NODES = "alpha=20us,beta=1GB/s,node=4,node-alpha=1us,node-beta=10GB/s"


class BenchFactorings(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0):
        done = subprocess.run([PROGRAM, "bench", "3d", *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def file(self):
        return json.loads((self.path / "a.json").read_text())

    def test_the_table_and_the_file_agree(self):
        done = self.bench("--ranks", "8", "--link", NODES, "--global-batch", "16", "--tp", "1,2,4,8", "--cp", "1,2", "--json", "a.json")
        file = self.file()
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#") and not line.startswith(" # ")]
        figures = {tuple(map(int, row[:4])): row for row in rows if row[5] != "refused:"}
        entries = {tuple(entry[axis] for axis in AXES): entry for entry in file["benchmarks"]}
        self.assertEqual(list(figures), list(entries), "the fastest first")
        for lengths, entry in entries.items():
            row, step = figures[lengths], entry["step_seconds"]
            self.assertEqual(row[5], f"{1e3 * step:.3f}")
            parts = [entry["compute_seconds"], entry["bubble_seconds"], *(entry["exposed_by_axis"][axis] for axis in ("tp", "cp", "dp", "pp"))]
            self.assertAlmostEqual(sum(parts) / step, 1, 9)
            self.assertEqual(row[6:12], [f"{100 * part / step:.2f}" for part in parts])
            self.assertEqual(row[12], f"{entry['peak_bytes']['total'] / 2**20:.2f}")
            self.assertEqual(int(row[4]), 16 // lengths[3])
        steps = [entry["step_seconds"] for entry in file["benchmarks"]]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(file["fastest"], dict(zip(AXES, next(iter(entries)))))
        self.assertIn("# fastest: tp {}, cp {}, pp {}, dp {}, ".format(*next(iter(entries))), done.stdout)
        self.assertEqual([tuple(entry[axis] for axis in AXES) for entry in file["not_chosen"]], list(entries)[1:])
        reasons = {tuple(entry[axis] for axis in AXES): entry["reason"] for entry in file["refused"]}
        self.assertEqual(set(reasons) & set(entries), set())
        self.assertEqual(len(reasons) + len(entries), 10 + 6, "2^3 over three axes, and 2^2 next to cp 2")
        self.assertIn("8 tensor-parallel ranks for 4 heads", reasons[8, 1, 1, 1])
        self.assertIn("8 pipeline stages are more than the model's 4 layers", reasons[1, 1, 8, 1])

    def test_a_limit_of_memory_decides_and_the_words_say_so(self):
        self.bench("--ranks", "4", "--cp", "1", "--json", "a.json")
        points = self.file()["benchmarks"]
        smallest = min(points, key=lambda point: point["peak_bytes"]["total"])
        self.assertNotEqual(smallest, points[0], "the fastest must not be the smallest")
        limit = smallest["peak_bytes"]["total"]
        done = self.bench("--ranks", "4", "--cp", "1", "--memory-limit", str(limit), "--json", "a.json")
        file = self.file()
        self.assertEqual(file["fastest"], {axis: smallest[axis] for axis in AXES})
        self.assertEqual([entry["fits"] for entry in file["benchmarks"]], [entry["peak_bytes"]["total"] <= limit for entry in points])
        self.assertRegex(done.stdout, r"# faster, but tp 1, cp 1, .*: needs .* MiB, .* more than a rank has: .* MiB for [\w ]+, .* more than there")
        done = self.bench("--ranks", "4", "--cp", "1", "--memory-limit", "1K", "--json", "a.json")
        self.assertIn("# no factoring within 1.00 KiB a rank", done.stdout)
        self.assertNotIn("fastest", self.file())

    def test_options_of_the_plan_apply_to_all(self):
        done = self.bench("--ranks", "4", "--tp", "2", "--cp", "1", "--zero", "1", "--schedule", "interleaved", "--virtual-stages", "2",
                          "--sequence-parallel", "--json", "a.json")
        points = {entry["pp"]: entry for entry in self.file()["benchmarks"]}
        self.assertEqual(set(points), {1, 2}, done.stdout)

    def test_one_more_block_finds_the_most_ranks(self):
        # Of 14.44 ranks, the textbook's 1 + batch * bandwidth / rate.
        (self.path / "model.json").write_text('{"n_layer": 2, "n_head": 8, "n_embd": 4096, "n_positions": 64, "vocab_size": 16}')
        for words in ([], ["--zero", "3", "--forward-prefetch"]):
            done = self.bench("--ranks", "12,14,15,20", "--tp", "1", "--cp", "1", "--pp", "1", "--model", "model.json", "--dtype", "bf16",
                              "--global-batch", "840", "--micro-batch-size", "840", "--link", "alpha=0us,beta=100GB/s",
                              "--per-block", "--products-only", "--exposed-limit", "0", "--json", "a.json", *words)
            file = self.file()
            for rule in ("together", "alone"):
                self.assertEqual(file["most_ranks"][rule], {"measured": 14, "expected": 14, "lengths": {"tp": 1, "cp": 1, "pp": 1, "dp": 14}})
            self.assertIn("all axes together: 14 (tp 1, cp 1, pp 1, dp 14), by the closed forms 14", done.stdout)
            self.assertEqual(file["context"]["lockstep.roofline"], "400 TFLOP/s, products only")
            for entry in file["benchmarks"]:
                self.assertAlmostEqual(entry["compute_seconds"] / entry["expected_compute_seconds"], 1, 9)

    def test_an_interrupted_search_keeps_what_it_has_found(self):
        words = [PROGRAM, "bench", "3d", "--ranks", "1024", "--model", "gpt2", "--json", "a.json"]
        for number in (signal.SIGTERM, signal.SIGINT):
            early, late, found = 0, None, None  # seconds before the first factoring is found, and after the last
            while not found:
                seconds = (early + late) / 2 if late else 2 * early or 0.5
                with subprocess.Popen(words, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
                    time.sleep(seconds)
                    running.send_signal(number)
                    said, errors = running.communicate(timeout=60)
                if running.returncode == 0:
                    late = seconds
                    self.assertGreater(late - early, 0.01, "an interruption was lost")
                    continue
                early = seconds
                self.assertEqual(running.returncode, 130, errors)
                found = re.fullmatch(r"lockstep: \[interrupted\] after (\d+) of (\d+) factorings; the others are listed as refused", errors.strip())
            file = self.file()
            self.assertEqual((len(file["benchmarks"]), len(file["benchmarks"]) + len(file["refused"])), tuple(map(int, found.groups())))
            self.assertIn("# fastest: tp ", said)
            reasons = [entry["reason"] for entry in file["refused"]]
            self.assertIn("not simulated: the search was interrupted", reasons)
            (self.path / "a.json").unlink()

    def test_wrong_input_is_refused(self):
        for words, part in [(["--ranks", "0"], "--ranks 0"), (["--ranks", "8", "--tp", "3"], "no factors of 8 ranks"),
                            (["--tp", "9", "--ranks", "8"], "--tp 9"), (["--memory-limit", "much"], "--memory-limit 'much'"),
                            (["--link", "fast"], "--link"), (["--tflops", "0"], "invalid rate 0"),
                            (["--ranks", "8", "--tp", "8"], "8 tensor-parallel ranks for 4 heads"),
                            (["--exposed-limit", "-1"], "--exposed-limit -1"),
                            (["--products-only", "--memory-bandwidth", "1"], "--memory-bandwidth with --products-only"),
                            (["--micro-batch-size", "0"], "--micro-batch-size 0"), (["--schedule", "1f1b,gpipe"], "unknown schedule '1f1b,gpipe'"),
                            (["--schedule", "magic", "--pp", "1"], "unknown schedule 'magic'")]:
            self.assertIn(part, self.bench(*words, status=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
