"""lockstep contributions: which ranks' data each rank holds, for every algorithm, and mistakes that it must show.

python3 contributions_test.py PROGRAM
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather")


class Contributions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def call(self, *words, status=0):
        done = subprocess.run([PROGRAM, "contributions", *map(str, words)], cwd=self.path, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr if status == 2 else done.stdout

    def result(self, *words, status=0):
        said = self.call(*words, "--json", "held.json", status=status)
        return json.loads((self.path / "held.json").read_text()), said

    def algorithms(self, operation):
        (names,) = re.findall(r"choose one of ([^;]*?), or auto", self.call(operation, "--algorithm", "magic", status=2))
        return names.split(", ")

    def test_every_algorithm_holds_each_contribution_once(self):
        ran = 0
        for operation in OPERATIONS:
            for algorithm in self.algorithms(operation):
                for ranks in (1, 2, 3, 4, 8):
                    words = (operation, "--algorithm", algorithm, "--ranks", ranks, "--elements", 2 * ranks)
                    done = subprocess.run([PROGRAM, "contributions", *map(str, words), "--json", "held.json"], cwd=self.path, capture_output=True,
                                          text=True, timeout=100, check=False)
                    if done.returncode == 2:  # it needs a power of two of ranks, another library, or nodes
                        self.assertIn(" needs ", done.stderr)
                        continue
                    ran += 1
                    with self.subTest(words):
                        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                        result = json.loads((self.path / "held.json").read_text())
                        self.assertEqual(result["wrong"], [])
                        self.check_result(operation, ranks, result)
        self.assertGreater(ran, 60)

    def check_result(self, operation, ranks, result):
        everyone = [1] * ranks
        for rank, records in enumerate(result["ranks"]):
            first, last = records["held"][0]["times"], records["held"][-1]["times"]
            for element in range(2 * ranks):
                owner = element // 2
                alone = [int(source == rank) for source in range(ranks)]
                self.assertEqual(first[element], alone if operation != "all_gather" or owner == rank else [0] * ranks)
                if operation == "all_gather":
                    self.assertEqual(last[element], [int(source == owner) for source in range(ranks)])
                elif operation == "all_reduce" or owner == rank:
                    self.assertEqual(last[element], everyone)

    def test_a_ring_message_by_message(self):
        result, said = self.result("all_reduce", "--ranks", 4)
        for rank, records in enumerate(result["ranks"]):
            self.assertEqual(records["messages"], 6)
            for number, held in enumerate(records["held"][1:], 1):
                self.assertEqual(held["from"], (rank - 1) % 4)
                self.assertEqual(held["reduces"], number <= 3)
                # In the first half, the chunk that grows now holds the data of number + 1 ranks.
                chunk = (rank - 1 - number) % 4 if number <= 3 else (rank - 1 - (number - 4)) % 4
                self.assertEqual((held["first"], held["count"]), (chunk, 1))
                self.assertEqual(sum(held["times"][chunk]), min(number + 1, 4))
        self.assertIn("  rank 0   adds what rank 3 sent    1...  1... [1..1] 1...\n", said)
        self.assertIn("right: every result holds each rank's data once", said)

    def test_mistakes_are_shown(self):
        for kind, times, part in (("drop", 0, "rank 2 lacks the data of rank 3 in element 2"),
                                  ("twice", 2, "rank 2 has the data of rank 3 in element 2, 2 times instead of 1")):
            result, said = self.result("reduce_scatter", "--ranks", 4, "--mistake", f"rank=2,message=3,kind={kind}", status=1)
            self.assertEqual(result["wrong"], [{"rank": 2, "element": 2, "source": source, "times": times, "wanted": 1} for source in (0, 1, 3)])
            self.assertEqual(result["wrong_number"], 3)
            self.assertIn(f"wrong: {part}\n", said)
        # What one rank drops early, all ranks lack.
        result, _ = self.result("all_reduce", "--ranks", 4, "--mistake", "rank=1,message=1,kind=drop", status=1)
        self.assertEqual({(one["rank"], one["element"], one["source"]) for one in result["wrong"]}, {(rank, 3, 0) for rank in range(4)})
        result, _ = self.result("all_gather", "--ranks", 3, "--mistake", "rank=0,message=2,kind=drop", status=1)
        self.assertEqual([(one["rank"], one["times"]) for one in result["wrong"]], [(0, 0)])

    def test_what_it_refuses(self):
        for words, part in ((("broadcast",), "use all_reduce, reduce_scatter or all_gather"), (("all_reduce", "--ranks", 17), "use 1 to 16"),
                            (("all_reduce", "--ranks", 0), "use 1 to 16"), (("all_reduce", "--elements", 65), "use 1 to 64"),
                            (("all_gather", "--elements", 5), "a multiple of the ranks"), (("all_reduce", "--algorithm", "magic"), "choose one of"),
                            (("all_reduce", "--mistake", "rank=4,message=1,kind=drop"), "ranks are 0 to 3"),
                            (("all_reduce", "--mistake", "rank=0,message=7,kind=drop"), "rank 0 receives 6 messages"),
                            (("all_reduce", "--mistake", "rank=0,message=4,kind=twice"), "receiving it twice has no effect"),
                            (("all_reduce", "--mistake", "rank=0,message=0,kind=drop"), "the first message of a rank is 1"),
                            (("all_reduce", "--mistake", "rank=0"), "no kind given"), (("all_reduce", "--mistake", "rank=x,kind=drop"), "is no number"),
                            (("all_reduce", "--mistake", "kind=lose"), "cannot read 'kind=lose'")):
            with self.subTest(words):
                self.assertIn(part, self.call(*words, status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
