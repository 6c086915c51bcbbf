"""lockstep bench exchange: its table, its words, its file, and the input it refuses.

python3 bench_exchange_test.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1])
LINK = ("--link", "alpha=10us,beta=1GB/s")


class BenchExchange(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0):
        done = subprocess.run([PROGRAM, "bench", "exchange", *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_the_table_and_the_file_agree(self):
        done = self.bench("--ranks", "2,4", *LINK, "--link", "dgx", "--encoding-rate", "2", "--json", "a.json")
        file = json.loads((self.path / "a.json").read_text())
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(rows), 2 * 2 * 8)
        for row, entry in zip(rows, file["benchmarks"], strict=True):
            self.assertEqual(row[:3], [str(entry[key]) for key in ("method", "ranks", "link")])
            none = entry["method"] == "none"
            self.assertEqual(row[3:], [f"{entry['message_bytes'] / 2**20:.3f}", str(entry["messages"]), f"{1e3 * entry['processor_seconds']:.3f}",
                                       "-" if none else "2.00", f"{1e3 * entry['link_seconds']:.3f}",
                                       f"{1e3 * (entry['processor_seconds'] + entry['link_seconds']):.3f}"])
            self.assertAlmostEqual(entry["processor_seconds"], 0 if none else entry["gradient_bytes"] / 2e9, 12)
        # Links inside a node and between nodes have no single bandwidth.
        self.assertEqual({round(c["latency_seconds"], 9) for c in file["exchange_crossovers"]}, {1e-5})
        self.assertEqual(len(file["exchange_crossovers"]), 2 * 7)
        for c in file["exchange_crossovers"]:
            self.assertIn(f"# {c['ranks']} ranks, latency 10 us: {c['method']} is faster than none below {c['bytes_per_second'] / 1e9:.4g} GB/s",
                          done.stdout)

    def test_measured_encoding_is_in_the_table(self):
        rows = [line.split() for line in self.bench("--method", "none,int8", "--ranks", "2", *LINK, "--repetitions", "1").stdout.splitlines()
                if not line.startswith("#")]
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertGreater(float(row[5]), 0)

    def test_what_cannot_be_is_skipped_or_refused(self):
        done = self.bench("--method", "none,powersgd:4000", "--ranks", "2", *LINK, "--encoding-rate", "1")
        self.assertIn("skipped: --exchange powersgd:4000", done.stdout)
        done = self.bench("--method", "none,galore", "--ranks", "2", *LINK, "--encoding-rate", "1")
        self.assertIn("skipped: --method galore, whose subspaces come from a training", done.stdout)
        done = self.bench("--method", "none,qgz:4,int8+int8", "--ranks", "2", *LINK, "--encoding-rate", "1")
        self.assertIn("skipped: --exchange qgz:4 with replicas that shard no gradients", done.stdout)
        self.assertIn("skipped: int8+int8 without --technique fsdp", done.stdout)
        self.assertIn("needs about", self.bench("--model", "gpt3", "--method", "none", "--ranks", "64", *LINK, status=2).stdout)
        for words, said in ((("--ranks", "1"), "--ranks 1; use 2 to"), (("--method", "zip"), "no point can be measured"),
                            (("--encoding-rate", "0"), "--encoding-rate 0"), (("--repetitions", "0"), "--repetitions 0"),
                            (("--encoding-rate", "1", "--repetitions", "2"), "--repetitions with --encoding-rate"),
                            (("--seeds", "2"), "--seeds without --train"), (("--steps", "2"), "--steps without --train"),
                            (("--train", "--seeds", "0"), "--seeds 0"), (("--link", "fast"), "fast"),
                            (("--train", "--validation-fraction", "0"), "--validation-fraction 0 with --train")):
            self.assertIn(said, self.bench(*words, status=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
