"""lockstep bench pairs: its table, file and picture, whose virtual times equal the closed forms; and the input it refuses.

python3 bench_pairs_test.py PROGRAM
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).absolute()
NODES = "alpha=16us,beta=1GB/s,node=4,node-alpha=2us,node-beta=4GB/s"


class BenchPairs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def run_program(self, *words, status=0, environment=None):
        done = subprocess.run([PROGRAM, *words], cwd=self.path, capture_output=True, text=True, timeout=120, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def pairs(self, *words, **more):
        return self.run_program("bench", "pairs", *words, **more)

    def file(self, *words):
        said = self.pairs(*words, "--json", "p.json").stdout
        return json.loads((self.path / "p.json").read_text()), said

    def test_links_of_nodes(self):
        file, said = self.file("--ranks", "8", "--clock", "unit", "--link", NODES, "-e", "1M", "--window", "2")
        inside = {pair for node in (range(4), range(4, 8)) for pair in itertools.combinations(node, 2)}
        between = {(rank, rank + 4) for rank in range(4)}
        self.assertEqual({(link["from"], link["to"]) for link in file["links"]}, inside | between)
        self.assertEqual([rank["host"].split(" node ")[1] for rank in file["ranks"]], ["0"] * 4 + ["1"] * 4)
        window = 2 << 20
        for link in file["links"]:
            in_host = (link["from"], link["to"]) in inside
            alpha, rate = (2, 4000) if in_host else (16, 1000)  # us, bytes/us
            self.assertEqual((link["in_host"], link["class"], link["classes"]), (in_host, 0, 1))
            self.assertAlmostEqual(link["latency_us"], alpha + 8 / rate, delta=1e-9)
            for key, bytes_sent, seconds in (("gb_per_s", window, 2 * alpha + window / rate), ("back_gb_per_s", window, 2 * alpha + window / rate),
                                             ("both_ways_gb_per_s", 2 * window, alpha + window / rate)):
                self.assertAlmostEqual(link[key], bytes_sent / seconds / 1e3, delta=1e-9)
        self.assertEqual(file["slow_links"], [])
        for part in ("# pairs among 8 ranks over virtual: 16 links in 7 rounds of disjoint pairs", "between hosts ", "inside a host ",
                     "# bisection: 4 pairs at once", "# incast: 7 ranks to rank 0", "# message rate: 4 pairs:", "100 % of it hidden",
                     "# no link is slow"):
            self.assertIn(part, said)

    def test_rows_are_compared_and_kept_like_others(self):
        file, _ = self.file("--ranks", "4", "--clock", "unit", "--link", "hdr")
        names = [entry["name"].split("/iterations")[0] for entry in file["benchmarks"]]
        self.assertEqual(len(set(names)), 4 * 6 + 2 + 1 + 2 + 1)
        for name in ("pairs/latency/virtual/ranks:4/bytes:8/from:0/to:3", "pairs/one_way/virtual/ranks:4/bytes:1048576/window:4/from:3/to:0",
                     "pairs/bisection_alone/virtual/ranks:4/bytes:1048576/window:4/pairs:1"):
            self.assertIn(name, names)
        self.assertTrue(all(len(entry["samples_us"]) == 1 for entry in file["benchmarks"]))
        said = self.run_program("compare", "p.json", "p.json").stdout
        self.assertIn("pairs/latency", said)
        self.pairs("--ranks", "4", "--clock", "unit", "--link", "100gbe", "--json", "q.json")
        self.run_program("compare", "p.json", "q.json", status=3)
        self.run_program("history", "add", "nights", "p.json")
        self.assertIn("pairs/", self.run_program("history", "show", "nights").stdout)

    def test_planted_slow_links_are_named(self):
        hosts = ("--ranks", "8", "--clock", "unit", "--link", "alpha=2us,beta=10GB/s,node=1")
        file, said = self.file(*hosts, "--slow-link", "5:10")
        self.assertEqual(file["context"]["lockstep.slow_link"], "5:10")
        self.assertEqual([(each["part"], each["from"], each["to"]) for each in file["slow_links"]], [("unit", 5, 5)])
        self.assertRegex(said, r"\nslow: host \S+ node 5 \(rank 5\) is slow with 7 of 7 others: its link; ")
        window = 4 << 20
        for link in file["links"]:
            rate = 1000 if 5 in (link["from"], link["to"]) else 10000  # bytes/us
            self.assertAlmostEqual(link["latency_us"], 2 + 8 / rate, delta=1e-9)
            self.assertAlmostEqual(link["gb_per_s"], window / (4 + window / rate) / 1e3, delta=1e-9)
        file, said = self.file(*hosts, "--slow-link", "6-1:10", "--slow-link", "2:4")
        self.assertEqual(file["context"]["lockstep.slow_link"], "6-1:10,2:4")
        self.assertEqual({(each["part"], each["from"], each["to"]) for each in file["slow_links"]}, {("cable", 1, 6), ("unit", 2, 2)})
        self.assertIn("that cable", said)
        # A file of other links is compared as one of other hardware.
        healthy, _ = self.file(*hosts)
        self.assertNotIn("lockstep.slow_link", healthy["context"])
        (self.path / "healthy.json").write_text(json.dumps(healthy))
        self.pairs(*hosts, "--slow-link", "5:10", "--json", "p.json")
        self.assertIn("slow_link: not recorded before, 5:10 now", self.run_program("compare", "healthy.json", "p.json", status=3).stdout)

    def test_real_time(self):
        file, said = self.file("--ranks", "3", "-e", "4K", "-n", "8", "-w", "0", "--plot", "p.svg")
        self.assertEqual(len(file["links"]), 3)
        self.assertTrue(all(len(entry["samples_us"]) == 8 and min(entry["samples_us"]) > 0 for entry in file["benchmarks"]))
        self.assertEqual({rank["device"] for rank in file["ranks"]}, {"host"})
        self.assertIn("3 links in 3 rounds", said)
        self.assertTrue((self.path / "p.svg").read_text().startswith("<?xml"))
        self.assertIn("# no link is judged: that takes -n 8 or more", self.pairs("-e", "1K", "-n", "1").stdout)

    def test_links_between_emulated_gpus(self):
        """Over NCCL with a GPU for each rank, otherwise over threads."""
        library = PROGRAM.parent.parent / "lib"
        emulated = {"LOCKSTEP_CUDA_MODULE": str(library / "liblockstep_cuda_emulated.so"), "LOCKSTEP_EMULATOR_DEVICES": "3",
                    "LOCKSTEP_NCCL_MODULE": str(library / "liblockstep_nccl_emulated.so")}
        for ranks, transport in ((3, "nccl"), (4, "threads")):
            self.pairs("--device", "cuda", "--ranks", str(ranks), "-e", "4K", "-n", "2", "--json", "p.json", environment=emulated)
            file = json.loads((self.path / "p.json").read_text())
            self.assertEqual(len(file["links"]), ranks * (ranks - 1) // 2)
            self.assertTrue(all(rank["device"].startswith("cuda") for rank in file["ranks"]), file["ranks"])
            self.assertTrue(all(entry["name"].split("/")[2] == transport for entry in file["benchmarks"]))
            self.assertTrue(all(link["gb_per_s"] > 0 for link in file["links"]))

    def test_a_quick_cover(self):
        file, said = self.file("--ranks", "16", "--clock", "unit", "--link", "hdr", "--rounds", "3")
        self.assertIn("24 links in 3 rounds", said)
        met = [link[end] for link in file["links"] for end in ("from", "to")]
        self.assertEqual({met.count(rank) for rank in range(16)}, {3})

    def test_bad_input(self):
        for words, part in ((("--ranks", "1"), "a pair needs two"), (("-b", "0"), "-b 0"), (("-e", "many"), "-e 'many'"),
                            (("-b", "2K", "-e", "1K"), "-e 1024; use a number from 2048"), (("--window", "0"), "--window 0"),
                            (("-n", "0"), "-n 0"), (("-w", "-1"), "-w -1"), (("--rounds", "-1"), "--rounds -1"), (("--effect", "0"), "--effect 0"),
                            (("--effect", "nan"), "--effect nan"), (("--ranks", "4", "--rounds", "4"), "all pairs take 3"),
                            (("--ranks", "128", "--clock", "unit"), "8128 links in 127 rounds"), (("--link", "hdr"), "--link hdr"),
                            (("--ranks", "4", "-e", "64G"), "-e 64G on 4 ranks"), (("--plot", "p.doc"), "p.doc"), (("--slow-link", "1:10"), "--slow-link 1:10 with the clock wall; it slows virtual links only"),
                            *((("--ranks", "4", "--clock", "unit", "--slow-link", text), part)
                              for text, part in (("4:10", "rank 4 of 4 ranks; ranks are 0 to 3"), ("0-4:10", "rank 4 of 4 ranks"),
                                                 ("1:1", "1 times as slow; use a factor above 1"), ("1:nan", "use a factor above 1"),
                                                 ("1:inf", "use a factor above 1"), ("1-1:2", "a cable from a rank to itself"),
                                                 ("fast", "--slow-link fast; write RANK:FACTOR"), ("", "write RANK:FACTOR"))),
                            (("--device", "none"), "--device none; choose host or cuda"), (("--device", "tpu"), "tpu"),
                            (("--device", "cuda", "--clock", "unit"), "--device cuda with --clock unit"), (("--json", "none/p.json"), "none")):
            with self.subTest(words=words):
                done = self.pairs(*words, status=2)
                self.assertIn(part, done.stderr)
                self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
