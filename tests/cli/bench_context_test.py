"""lockstep bench cp: its table, its file, and the input it refuses.

python3 bench_context_test.py PROGRAM SOURCE_FOLDER
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
DATA = SOURCE / "tests" / "golden" / "tiny" / "tokens.bin"


class BenchContext(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0):
        done = subprocess.run([PROGRAM, "bench", "cp", *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def rows(self, done):
        lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
        return {(line[0], int(line[1])): line for line in lines}

    def test_a_training_prints_each_count_next_to_its_closed_form(self):
        done = self.bench("--data", DATA, "--lengths", "16", "--steps", "2", "--repetitions", "2", "--json", "a.json")
        file = json.loads((self.path / "a.json").read_text())
        self.assertEqual([entry["method"] for entry in file["benchmarks"]], [
            "one-rank", "ring-contiguous", "ring-zig-zag", "ring-striped", "all-gather", "ulysses", "ulysses-2-ring"])
        rows = self.rows(done)
        for entry in file["benchmarks"]:
            row = rows[entry["method"], entry["ranks"]]
            sent, expected_sent, pairs, expected_pairs, imbalance, kept, expected_kept, room, expected_room, total = row[11:]
            self.assertEqual((sent, pairs, kept, room), (expected_sent, expected_pairs, expected_kept, expected_room))
            self.assertEqual(sent, f"{entry['exchanged_bytes'] / 2**20:.3f}")
            self.assertEqual(total, f"{entry['peak_bytes']['total'] / 2**20:.3f}")
            self.assertEqual(entry["expected_exchanged_bytes"], entry["exchanged_bytes"])
            self.assertEqual(entry["expected_pairs"], entry["pairs"])
            if entry["ranks"] > 1:
                self.assertEqual(imbalance, f"{max(entry['pairs']) * 4 / sum(entry['pairs']):.4f}")
            self.assertAlmostEqual(entry["tokens_per_second"] * entry["step_seconds"], 16, delta=1e-6)
        self.assertEqual(file["context"]["lockstep.clock"], "cpu")

    def test_a_simulation_says_what_is_fastest_and_how_far_layouts_differ(self):
        done = self.bench("--simulate", "--ranks", "2,8", "--heads", "8", "--kv-heads", "2", "--lengths", "64,65536", "--method",
                          "ring-contiguous,ring-zig-zag,ulysses,ulysses-4-ring", "--json", "a.json")
        self.assertRegex(done.stdout, r"ulysses-4-ring +2 .*skipped: groups of 4 of 2 ranks")
        file = json.loads((self.path / "a.json").read_text())
        limits = {(limit["ranks"], limit["length"]): limit for limit in file["context_limits"]}
        for (ranks, length), limit in limits.items():
            self.assertIn(f"# {ranks} ranks, {length} tokens: attention of contiguous tokens takes {limit['measured']:.6f} times as long as of "
                          f"zig-zag ones, by its pairs {limit['measured']:.6f}, in the limit (2c-1)/c = {(2 * ranks - 1) / ranks:.6f}", done.stdout)
        self.assertEqual(set(limits), {(2, 64), (2, 65536), (8, 64), (8, 65536)})
        times = {(entry["method"], entry["length"]): entry["step_seconds"] for entry in file["benchmarks"] if entry["ranks"] == 8}
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("# fastest on 8 ranks")]
        for method, length in re.findall(r"([\w-]+) up to (\d+) tokens", line):
            self.assertEqual(times[method, int(length)], min(time for (_, other), time in times.items() if other == int(length)))
        self.assertTrue(line.startswith("# fastest on 8 ranks, 8 query heads, 2 key/value heads, link ndr: "))
        self.assertIn(" up to 65536 tokens", line)
        for crossover in file["context_crossovers"]:
            self.assertIn(f"{crossover['heads']} query heads, {crossover['kv_heads']} key/value heads", done.stdout)
        self.assertIn("# 8 query heads, 2 key/value heads, 64 tokens: Ulysses sends less than a ring above ", done.stdout)

    def test_the_error_of_bf16_is_written(self):
        done = self.bench("--error", "--lengths", "64", "--ranks", "1,8", "--kv-heads", "2", "--json", "a.json")
        file = json.loads((self.path / "a.json").read_text())
        self.assertEqual(file["context"]["lockstep.attention"], "64 tokens, 4 heads of 32, 2 of keys and values")
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(rows, [[entry["accumulation"], str(int(entry["ranks"])), f"{entry['output_error']:.3e}",
                                 f"{entry['gradient_error']:.3e}"] for entry in file["benchmarks"]])
        self.assertEqual([row[:2] for row in rows], [["f32", "1"], ["bf16", "1"], ["f32", "8"], ["bf16", "8"]])

    def test_bad_flags_are_refused(self):
        for words in (["--method", "ring"], ["--method", "ulysses-1-ring"], ["--ranks", "0"], ["--ranks", "2000"], ["--lengths", "0"],
                      ["--heads", "0"], ["--kv-heads", "-1"], ["--repetitions", "0"], ["--clock", "unit"], ["--link", "nolink"],
                      ["--clock", "wall", "--link", "ndr"], ["--tflops", "1"], ["--simulate", "--steps", "3"], ["--simulate", "--clock", "cpu"],
                      ["--simulate", "--tflops", "0"], ["--error", "--simulate"], ["--error", "--method", "ulysses"],
                      ["--error", "--lengths", "64,128"], ["--error", "--lengths", "60", "--ranks", "8"], ["--error", "--kv-heads", "3"],
                      ["--simulate", "--method", "ulysses", "--ranks", "8"], ["--json", "/proc/a.json"], ["--plot", "a.txt"]):
            with self.subTest(words=words):
                self.assertIn("lockstep: ", self.bench(*words, status=2).stderr)
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
