"""The message matrices hold every byte that the counters count.

python3 matrix_test.py PROGRAM SOURCE_FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import matrix
import results

GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TRAIN = ["--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "8", "--steps", "2",
         "--validation-fraction", "0.2", "--eval-interval", "1"]
TECHNIQUES = {
    "ddp": ["ddp", "--ranks", "3", "--global-batch", "6"],
    "f16": ["ddp", "--ranks", "2", "--dtype", "f16"],  # its ranks agree within a step whether a gradient overflowed
    "zero": ["zero", "--ranks", "2", "--stage", "3"],
    "fsdp": ["fsdp", "--ranks", "4"],
    "ps": ["ps", "--ranks", "5", "--servers", "2", "--global-batch", "6"],
    "colocated": ["ps", "--ranks", "2", "--colocated"],
    "pipeline": ["pipeline", "--ranks", "2", "--micro-batches", "4"],
    "tp": ["tp", "--ranks", "2"],
    "sp": ["sp", "--ranks", "2"],
    "3d": ["3d", "--ranks", "8", "--tp", "2", "--pp", "2", "--micro-batches", "2"],
    "moe": ["moe", "--ranks", "4", "--ep", "2", "--model", SOURCE / "tests" / "golden" / "tiny_moe" / "config.json"],
}


class Matrices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def train(self, name, clock):
        words = ["train", *TECHNIQUES[name][:1], *TRAIN, *TECHNIQUES[name][1:], "--clock", clock, "--json", "run.json", "--trace", "trace.json"]
        done = subprocess.run([PROGRAM, *words], cwd=self.folder, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}{done.stderr}")
        (trace,) = results.read([self.folder / "trace.json"]).traces
        return trace, json.loads((self.folder / "run.json").read_text())

    def test_rows_and_columns_sum_to_what_the_counters_count(self):
        for name in TECHNIQUES:
            for clock in ("wall", "unit"):
                with self.subTest(name=name, clock=clock):
                    trace, run = self.train(name, clock)
                    sent, received, by_label = {}, {}, {}
                    for _, pairs in matrix.panels(trace):
                        for (source, target), (_, total) in pairs.items():
                            sent[source] = sent.get(source, 0) + total
                            received[target] = received.get(target, 0) + total
                    for message in matrix.messages(trace):
                        key = message.source, message.label
                        by_label[key] = by_label.get(key, 0) + message.bytes
                    counted = {rank["rank"]: rank for rank in run["ranks"]}
                    self.assertGreater(sum(sent.values()), 0)
                    for number, rank in counted.items():
                        self.assertEqual(sent.get(number, 0), rank["sent_bytes"]["total"])
                        self.assertEqual(received.get(number, 0), rank["received_bytes"]["total"])
                        labels = {label: count for label, count in rank["sent_bytes"].items() if label != "total" and count}
                        self.assertEqual({label: count for (source, label), count in by_label.items() if source == number}, labels)

    def test_every_axis_of_a_mesh_has_its_own_panel(self):
        trace, _ = self.train("3d", "unit")
        pairs_of = {title.split("; ")[-1]: set(pairs) for title, pairs in matrix.panels(trace)}
        stride = {1: set(), 2: set(), 4: set()}  # tp, dp, pp: the usual order of the mesh
        for step, pairs in stride.items():
            for rank in range(8):
                if rank // step % 2 == 0:
                    pairs |= {(rank, rank + step), (rank + step, rank)}
        for step, pairs in stride.items():
            self.assertEqual(pairs_of[f"4 groups, as ranks 0 {step}"], pairs)

    def test_ranks_of_a_group_of_a_group_are_the_worlds(self):
        self.assertEqual(matrix._members("world", 3), [0, 1, 2])
        self.assertEqual(matrix._members("world/1,3,5#0/2,0#4", 6), [5, 1])
        self.assertEqual(matrix._members("world/1,2#0/two ends#0", 3), [1, 2, 1, 2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
