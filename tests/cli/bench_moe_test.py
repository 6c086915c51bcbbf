"""lockstep bench moe: its table, its words, its file, and the input it refuses.

python3 bench_moe_test.py PROGRAM
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1])
LINKS = [f"alpha={latency}us,beta=20GB/s,node=4,node-alpha=1us,node-beta=80GB/s" for latency in (1, 10)]
SMALL = ("--ranks", "8", "--per-token", "2", "--experts", "16", "--tokens", "1024", "--width", "1024")


class BenchMoe(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0):
        done = subprocess.run([PROGRAM, "bench", "moe", *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_the_table_and_the_file_agree(self):
        done = self.bench(*SMALL, "--link", LINKS[0], "--link", LINKS[1], "--skew", "even,zipf:1", "--json", "a.json")
        file = json.loads((self.path / "a.json").read_text())
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(rows), len(file["benchmarks"]))
        self.assertEqual(len(rows), 2 * 2 * 5)
        for row, entry in zip(rows, file["benchmarks"]):
            self.assertEqual(row[:6], [str(entry[key]) for key in ("method", "ranks", "per_token", "tokens", "skew", "link")])
            expected = entry.get("expected_dispatch_seconds")
            self.assertEqual(row[6:10], [f"{1e6 * entry['counts_seconds']:.2f}", f"{1e6 * entry['dispatch_seconds']:.2f}",
                                         "-" if expected is None else f"{1e6 * expected:.2f}", f"{1e6 * entry['combine_seconds']:.2f}"])
            self.assertEqual(row[10:12], [f"{entry[key] / 2**20:.3f}" for key in ("dispatch_bytes", "mean_dispatch_bytes")])
            if entry["skew"] == "even":
                self.assertAlmostEqual(entry["dispatch_seconds"] / expected, 1, 9)

    def test_it_says_where_two_levels_win_and_what_skew_costs(self):
        done = self.bench(*SMALL, "--link", LINKS[0], "--link", LINKS[1], "--skew", "even,zipf:1", "--json", "a.json")
        file = json.loads((self.path / "a.json").read_text())
        (crossing,) = [c for c in file["moe_crossovers"] if (c["method"], c["over"], c["skew"]) == ("two_level", "latency", "even")]
        pair_bytes = 1024 * 2 * 1024 * 2 / 8
        self.assertAlmostEqual(crossing["at"] / (pair_bytes / 80e9), 1, 9)
        self.assertAlmostEqual(crossing["expected"] / crossing["at"], 1, 9)
        self.assertTrue(crossing["is_faster_above"])
        self.assertRegex(done.stdout, r"# even, 8 ranks, K 2, 1024 tokens: two_level is faster than all_to_all above a latency between nodes "
                                      r"of 6.554 us; closed form: S/P beta inside = 6.554 us")
        seconds = {(entry["method"], entry["skew"], entry["link"]): entry["dispatch_seconds"] + entry["combine_seconds"]
                   for entry in file["benchmarks"]}
        self.assertEqual(len(file["moe_prices"]), 2 * 5)
        for price in file["moe_prices"]:
            even = seconds[price["method"], "even", price["link"]]
            self.assertAlmostEqual(price["times"] * even / seconds[price["method"], "zipf:1", price["link"]], 1, 9)
        said = [line for line in done.stdout.splitlines() if line.endswith("times as long as even")]
        self.assertEqual(len(said), 2)
        self.assertIn(f"all_to_all {file['moe_prices'][0]['times']:.3f}", said[0])

    def test_it_simulates_steps_with_and_without_pairs(self):
        words = (*SMALL[2:], "--ranks", "4", "--method", "all_to_all", "--layers", "4", "--expert-width", "512")
        done = self.bench(*words, "--pairs", "--link", "free", "--link", "alpha=1us,beta=20GB/s", "--json", "a.json", "--trace", "t.json")
        pairs = json.loads((self.path / "a.json").read_text())["moe_pairs"]
        table = done.stdout.split("# a step")[1].splitlines()[1:]
        rows = [line.split() for line in table if not line.startswith("#")]
        self.assertEqual(len(rows), 2)
        for row, pair in zip(rows, pairs, strict=True):
            one, two = pair["one_by_one"], pair["in_turns"]
            self.assertEqual(row[:5], [str(pair[key]) for key in ("skew", "ranks", "per_token", "tokens", "link")])
            self.assertEqual(row[5:7], [f"{1e3 * step['seconds']:.3f}" for step in (one, two)])
            self.assertEqual(row[7:9], [f"{4 * 8 * 1024 / step['seconds']:.0f}" for step in (one, two)])
            self.assertEqual(row[9], f"{one['seconds'] / two['seconds']:.3f}")
            self.assertEqual(row[10:12], [f"{1e3 * step['exposed_seconds']:.3f}" for step in (one, two)])
        self.assertEqual(rows[0][9], "1.000")  # nothing travels
        self.assertGreater(float(rows[1][9]), 1.1)
        # The trace is of the first link: both passes of a pair take turns on a rank.
        names = [event["name"] for event in json.loads((self.path / "t.json").read_text())["traceEvents"]
                 if event["ph"] == "X" and event["pid"] == 0 and event["cat"] in ("forward", "backward")]
        self.assertTrue(any(a == c and b == d and a != b for a, b, c, d in zip(names, names[1:], names[2:], names[3:])), names)

    def test_draws_are_repeated_and_depend_on_the_seed(self):
        words = (*SMALL, "--skew", "zipf:1", "--method", "all_to_all")
        first = self.bench(*words).stdout
        self.assertEqual(first, self.bench(*words).stdout)
        self.assertNotEqual(first, self.bench(*words, "--seed", "2").stdout)

    def test_what_cannot_be_is_skipped_or_refused(self):
        done = self.bench("--ranks", "3,4", "--experts", "16", "--tokens", "64", "--per-token", "2", "--link", "ndr")
        self.assertEqual(len(re.findall(r"skipped: 3 ranks cannot divide 16 experts", done.stdout)), 5)
        for words, said in ((("--ranks", "1"), "--ranks 1; use 2 to"), (("--method", "ring"), "no method 'ring'; choose from all_to_all"),
                            (("--skew", "zipf:x"), "no skew 'zipf:x'"), (("--per-token", "0"), "--per-token 0"),
                            (("--expert-capacity-factor", "0"), "--expert-capacity-factor 0"), (("--link", "fast"), "fast"),
                            (("--ranks", "3"), "no point can be measured"), (("--layers", "4"), "--layers without --pairs"),
                            (("--pairs", "--layers", "2", *SMALL), "no step can be simulated"), (("--pairs", "--tflops", "0"), "invalid rate 0"),
                            (("--trace", "t.json"), "--trace without --pairs"), (("--pairs", "--micro-batches", "0"), "--micro-batches 0"), (("--dtype", "f12"), "f12")):
            self.assertIn(said, self.bench(*words, status=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
