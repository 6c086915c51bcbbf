"""lockstep bench all_to_all_v: counts that differ for every pair of ranks, by a rule or from a file, and the files it refuses.

python3 bench_uneven_test.py PROGRAM
"""

import collections
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).absolute()
LIBRARY = PROGRAM.parent.parent / "lib"
MATRIX = [[8, 4096, 0, 16], [0, 1024, 2048, 64], [4, 4, 4, 4], [1 << 20, 0, 0, 0]]
MATRIX_TEXT = "8 4K 0 16\n0 1K 2K 64\n4 4 4\t4\n1M  0 0 0\n\n"
UNIT = ("--clock", "unit", "--link", "alpha=3us,beta=10GB/s", "-c", "1")


def zipf(size, ranks, exponent):
    """The bytes that each rank sends to each other, of f32: shares of 1 / (j + 1)^exponent, which end at whole elements."""
    weights = list(itertools.accumulate((j + 1) ** -exponent for j in range(ranks)))
    ends = [0] + [int(size // 4 * weight / weights[-1]) for weight in weights[:-1]] + [size // 4]
    return [[4 * (end - begin) for begin, end in zip(ends, ends[1:])]] * ranks


def busiest(matrix):
    """The rank that sends to others, or receives from them, the most bytes; and these."""
    ranks = range(len(matrix))
    traffic = [max(sum(matrix[r][o] for o in ranks if o != r), sum(matrix[o][r] for o in ranks if o != r)) for r in ranks]
    return traffic.index(max(traffic)), max(traffic)


class BenchUneven(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0, operation="all_to_all_v", **more):
        done = subprocess.run([PROGRAM, "bench", operation, *words], cwd=self.path, capture_output=True, text=True, timeout=120, **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def entries(self, *words, **more):
        self.bench(*words, "--json", "b.json", **more)
        return json.loads((self.path / "b.json").read_text())["benchmarks"]

    def check(self, matrix, entries):
        """Results, bandwidths, and every message of every call."""
        rank, most = busiest(matrix)
        mean = sum(map(sum, matrix)) // len(matrix) // 4 * 4
        for entry in entries:
            self.assertEqual((entry["wrong"], entry["bytes"]), (0, mean), entry["name"])
            self.assertEqual((entry["busiest_rank"], entry["busiest_bytes"]), (rank, most))
            self.assertAlmostEqual(entry["algbw_gb_per_s"], mean / entry["p50_us"] / 1e3, delta=1e-9)
            self.assertAlmostEqual(entry["busbw_gb_per_s"], most / entry["p50_us"] / 1e3, delta=1e-9)
            self.assertGreaterEqual(entry["p50_us"], (3 + most / 1e4) * (1 - 1e-9), "faster than the busiest rank's link")
        sent = collections.defaultdict(list)
        for event in json.loads((self.path / "t.json").read_text())["traceEvents"]:
            if event["ph"] == "s" and event["args"]["label"] == "all_to_all_v":
                sent[(event["args"]["operation"], event["id"].split(":")[1])].append(event["args"]["bytes"])
        pairs = [pair for pair in itertools.permutations(range(len(matrix)), 2)]
        self.assertEqual(set(sent), {(f"all_to_all_v/{name}", f"{a}>{b}") for name in ("pairwise", "linear") for a, b in pairs})
        for (_, pair), messages in sent.items():
            source, target = map(int, pair.split(">"))
            self.assertEqual(messages, [matrix[source][target]] * 2, f"{pair}: of the measured and the checked call")

    def test_skew_by_a_rule(self):
        for ranks, size in ((4, 65536), (3, 12), (2, 1000)):
            entries = self.entries("--ranks", str(ranks), "-b", str(size), "-e", str(size), "--skew", "zipf:1.2", *UNIT, "--algorithm",
                                   "pairwise,linear", "--trace", "t.json")
            self.check(zipf(size, ranks, 1.2), entries)
            self.assertTrue(all("/skew:zipf:1.2/" in entry["name"] for entry in entries))
            self.assertEqual({bool(entry["model_is_exact"]) for entry in entries}, {ranks == 2 or size == 12})
            for entry in entries:
                if entry["model_is_exact"]:
                    self.assertAlmostEqual(entry["p50_us"], entry["model_us"], delta=1e-9)
        done = self.bench("--ranks", "4", "-b", "64K", "-e", "64K", "--skew", "zipf:1.2", *UNIT)
        self.assertIn("# skew zipf:1.2: rank 0 is the busiest, it receives 103896 bytes from others, 1.59 times", done.stdout)
        self.assertIn(" ~", done.stdout, "the model is an estimate")

    def test_skew_from_a_file(self):
        (self.path / "m.txt").write_text(MATRIX_TEXT)
        words = ("--ranks", "4", "--matrix", "m.txt", *UNIT, "--algorithm", "pairwise,linear")
        entries = self.entries(*words, "--trace", "t.json")
        self.check(MATRIX, entries)
        name = re.search("/skew:(matrix-[0-9a-f]{16})/", entries[0]["name"]).group(1)
        (self.path / "m.txt").write_text("\n".join("\t ".join(map(str, row)) for row in MATRIX))
        self.assertIn(name, self.entries(*words)[0]["name"], "the same bytes, written in another way")
        (self.path / "m.txt").write_text(MATRIX_TEXT.replace("16", "20"))
        self.assertNotIn(name, self.entries(*words)[0]["name"])

    def test_real_ranks_send_uneven_counts(self):
        (self.path / "m.txt").write_text(MATRIX_TEXT)
        for words in (("--ranks", "4", "--matrix", "m.txt"), ("--ranks", "3", "--skew", "zipf:2", "-b", "1", "-e", "100K", "-f", "17")):
            done = self.bench(*words, "-d", "i32", "-n", "2", "-w", "1", "--algorithm", "all", "--buffers", "consume")
            self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        (self.path / "m.txt").write_text("16 0\n8 24\n")
        for words in (["-d", "all"], ["--buffers", "dirty"]):
            self.assertIn(" 0 OK", self.bench("--matrix", "m.txt", "-n", "1", "-w", "0", *words).stdout)
        self.assertIn(" 0 OK", self.bench("--ranks", "1", "-b", "8", "-e", "8", "-n", "1", "--skew", "zipf:1").stdout)

    def test_libraries_send_the_same_counts(self):
        (self.path / "m.txt").write_text("16 64K\n8 24\n")
        peers = [name for name in ("openmpi", "mpich", "gloo") if (LIBRARY / f"liblockstep_{name}.so").exists()]
        for words in (("--matrix", "m.txt"), ("--skew", "zipf:1.2", "-b", "100K", "-e", "100K")) if peers else ():
            entries = self.entries(*words, "-d", "i32", "-n", "1", "-w", "0", "--peer", ",".join(peers))
            self.assertEqual([(e["name"].split("/")[1], e["wrong"]) for e in entries], [("auto", 0), *((name, 0) for name in peers)])

    def test_a_library_is_told_the_counts(self):
        (self.path / "mpirun.openmpi").write_text("#!/bin/sh\necho \"$@\"\nexit 1\n")
        (self.path / "mpirun.openmpi").chmod(0o755)
        (self.path / "m.txt").write_text("16 64K\n8 24\n")
        environment = {**os.environ, "PATH": f"{self.path}:/bin"}
        for words in ("--skew zipf:1.2", "--matrix m.txt"):
            said = self.bench(*words.split(), "--peer", "openmpi", status=4, env=environment).stderr
            self.assertIn(f" {words} ", said)

    def test_without_skew_it_takes_as_long_as_all_to_all(self):
        words = ("--ranks", "4", "-b", "1", "-e", "100K", "-f", "11", *UNIT, "--algorithm", "pairwise,linear")
        uneven, equal = self.entries(*words), self.entries(*words, operation="all_to_all")
        for ours, theirs in zip(uneven, equal, strict=True):
            self.assertEqual(theirs["name"].replace("all_to_all/", "all_to_all_v/").replace("type:f32", "type:f32/skew:uniform"), ours["name"])
            for key in ("bytes", "p50_us", "model_us", "model_is_exact", "wrong"):
                self.assertEqual(ours[key], theirs[key], ours["name"])
            self.assertAlmostEqual(ours["busbw_gb_per_s"], theirs["busbw_gb_per_s"], delta=1e-9)

    def test_results_with_another_skew_are_not_compared(self):
        for name, skew in (("old.json", "uniform"), ("same.json", "uniform"), ("new.json", "zipf:1.2")):
            self.bench("-b", "1K", "-e", "1K", *UNIT, "--skew", skew, "--json", name)
        compare = [subprocess.run([PROGRAM, "compare", "old.json", name], cwd=self.path, capture_output=True, text=True)
                   for name in ("same.json", "new.json")]
        self.assertEqual([done.returncode for done in compare], [0, 2], compare[1].stdout + compare[1].stderr)

    def test_what_is_wrong_in_a_file_is_named_with_its_place(self):
        for content, place, part in (
                ("4 8\n4\n", "line 2, column 2", "the line ends after 1 of 2 sizes"), ("4 8 0\n4 4 0\n", "line 1, column 5", "more sizes than the 2"),
                ("4 8\n", "line 2, column 1", "the file ends after 1 of 2 lines"), ("4 8\n4 4\n4 4\n", "line 3, column 1", "more lines than the 2"),
                ("", "line 1, column 1", "after 0 of 2 lines"), ("4 4\n\n4 4\n", "line 2, column 1", "after 0 of 2 sizes"),
                ("4  -8\n4 4\n", "line 1, column 4", "'-8' is not a number"), ("4 8\n4 x\n", "line 2, column 3", "'x' is not a number"),
                ("4 8\n4 1.5\n", "line 2, column 3", "'1.5' is not a number"), ("4 8\n4 4T\n", "line 2, column 3", "'4T' is not a number"),
                ("4 99999999999\n4 4\n", "line 1, column 3", "more than 68719476736"),
                ("4 4\n999999999999999999999 4\n", "line 2, column 1", "more than 68719476736"),
                ("4 4\n17179869185G 4\n", "line 2, column 1", "more than 68719476736"),
                ("4 4\n4 6\n", "line 2, column 3", "6 bytes are no whole elements of f32")):
            with self.subTest(content=content):
                (self.path / "m.txt").write_text(content)
                done = self.bench("--matrix", "m.txt", status=2)
                self.assertIn(f"m.txt, {place}: ", done.stderr)
                self.assertIn(part, done.stderr)
                self.assertEqual(done.stdout, "", "it is refused before anything is measured")
        (self.path / "m.txt").write_text("8 4\n8 8\n")
        self.assertIn("line 1, column 3: 4 bytes are no whole elements of f64", self.bench("--matrix", "m.txt", "-d", "all", status=2).stderr)
        self.assertIn("missing.txt", self.bench("--matrix", "missing.txt", status=2).stderr)
        for flag in (["-b", "4"], ["-e", "4"], ["-f", "3"], ["-i", "4"], ["--skew", "uniform"]):
            self.assertIn("excludes", self.bench("--matrix", "m.txt", *flag, status=2).stderr)

    def test_rules_that_do_not_exist_are_refused(self):
        for skew in ("zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:x", "zipf:1x", "zipf:nan", "zipf:1e9", "even"):
            self.assertIn(f"--skew '{skew}'; choose uniform, or zipf:S", self.bench("--skew", skew, status=2).stderr)
        self.assertIn("has no flag --skew", self.bench("--skew", "zipf:1", operation="all_to_all", status=2).stderr)
        self.assertIn("cannot choose by size", self.bench("--tune", "t.json", status=2).stderr)
        self.assertIn("from 1 to 68719476736", self.bench("-b", "17179869185G", status=2).stderr)

    def test_planted_faults_are_named(self):
        words = ("--ranks", "3", "--skew", "zipf:1.2", "-b", "1K", "-e", "1K", "-n", "2", "-w", "1", "--timeout", "1", *UNIT, "--fault")
        for kind, status in {"throw": 4, "hang": 4, "skip": 1, "count": 1, "dtype": 1, "op": 1, "root": 1, "order": 1}.items():
            with self.subTest(kind=kind):
                said = self.bench(*words, f"rank=1,op=3,kind={kind}", status=status).stderr
                self.assertRegex(said, r"all_to_all_v/pairwise (over virtual )?#\d")
                self.assertRegex(said, r"rank 1 (of 3|keeps|calls|failed)")
        for kind in ("delay", "nan"):
            self.bench(*words, f"rank=1,op=3,kind={kind}")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
