"""Plots of experts and the report's section on them: their numbers are those of the result files and of the counters.

python3 experts_plots_test.py PROGRAM SOURCE_FOLDER
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import experts
import report
import results
from chart import bytes_text

GOLDEN = SOURCE / "tests" / "golden" / "tiny_moe"
TRAIN = ["--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "8", "--steps", "3"]
RUNS = {"serial": ["serial"], "moe": ["moe", "--ranks", "4", "--ep", "2"],
        "dropping": ["moe", "--ranks", "2", "--ep", "2", "--expert-capacity-factor", "1", "--token-drop-policy", "probs"]}
LABELS = ["dispatch forward", "combine forward", "combine backward", "dispatch backward"]


class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, words in RUNS.items():
            done = subprocess.run([PROGRAM, "train", *words, *TRAIN, "--json", f"{name}.json", "--trace", f"{name}.trace.json"], cwd=cls.folder,
                                  capture_output=True, text=True, timeout=200)
            assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"

    def read(self, *names):
        return results.read([self.folder / name for name in names])

    def json(self, name):
        return json.loads((self.folder / f"{name}.json").read_text())

    def test_rows_of_experts_have_a_panel_for_each_exchange(self):
        chart = experts.between_ranks(self.read("moe.trace.json").traces[0])
        self.assertEqual([axes.get_title() for axes in chart.figure.axes], LABELS)
        for rank in self.json("moe")["ranks"]:
            for label in LABELS:
                sent = sum(row[4] for row in chart.rows if row[:2] == (label, rank["rank"]))
                received = sum(row[4] for row in chart.rows if (row[0], row[2]) == (label, rank["rank"]))
                self.assertEqual((sent, received), (rank["sent_bytes"][label], rank["received_bytes"][label]))
                self.assertGreater(sent, 0)
        self.assertTrue(all(abs(row[1] - row[2]) == 1 and row[1] // 2 == row[2] // 2 for row in chart.rows))  # in groups of two
        cells = {label: {row[1:3]: row[4] for row in chart.rows if row[0] == label} for label in LABELS}
        self.assertEqual(cells["combine forward"], {(target, source): total for (source, target), total in cells["dispatch forward"].items()})
        self.assertIsNone(experts.between_ranks(self.read("serial.trace.json").traces[0]))

    def section(self, *names):
        (found,) = [own for own in report.sections(self.read(*names)) if own.title == "Expert parallelism"]
        return found

    def test_the_section_names_the_busiest_expert_and_ranks(self):
        run = self.json("moe")
        step = run["steps"][-1]
        times = max(max(layer) * len(layer) / sum(layer) for layer in step["tokens_of_experts"])
        sent = [sum(rank["sent_bytes"][label] for label in LABELS) for rank in run["ranks"]]
        rows = [rank["expert_rows"] for rank in run["ranks"]]
        finding = self.section("moe.json", "moe.trace.json").finding
        for part in (f"{times:.2f} times the mean", f"MaxVio is {times - 1:.2f}",
                     f"entropy is {step['router_entropy']:.2f} nats of {math.log(4):.2f}, that of 4 equal experts",
                     f"rank {sent.index(max(sent))} sends {bytes_text(max(sent))} of", f"rank {sent.index(min(sent))} {bytes_text(min(sent))}, the least",
                     f"experts of rank {rows.index(max(rows))} compute {max(rows)} rows, the most", f"rank {rows.index(min(rows))} {min(rows)}, the least"):
            self.assertIn(part, finding)
        self.assertNotIn("dropped", finding)

    def test_the_section_says_what_was_dropped(self):
        share = self.json("dropping")["steps"][-1]["dropped_share"]
        self.assertGreater(share, 0)
        self.assertIn(f"{100 * share:.1f} % of all choices are dropped", self.section("dropping.json").finding)

    def test_each_rank_has_a_bar_of_its_exchanges(self):
        own = self.section("moe.json", "moe.trace.json", "serial.json")
        titles = [chart.title for chart in own.charts]
        self.assertEqual(titles, ["The busiest expert", "Tokens of each expert in the last step", "The load of each expert", "Experts' rows that each rank sends",
                                  "Rows of experts between ranks"])
        bars = own.charts[3]
        for rank in self.json("moe")["ranks"]:
            for label in LABELS:
                (row,) = [row for row in bars.rows if row[1:3] == (rank["rank"], label)]
                self.assertEqual(row[3], rank["sent_bytes"][label])
        ends = [sum(patch.get_width() for patch in bars.figure.axes[0].patches if round(patch.get_y() + patch.get_height() / 2) == place)
                for place in range(4)]
        self.assertEqual(ends, [sum(rank["sent_bytes"][label] for label in LABELS) for rank in self.json("moe")["ranks"]])

    def test_one_rank_has_the_section_without_exchanges(self):
        own = self.section("serial.json")
        self.assertNotIn("In a step", own.finding)
        self.assertEqual(len(own.charts), 3)
        self.assertTrue(re.search(r"<h2>Expert parallelism</h2>", report.text_of(self.read("serial.json"), "Report")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
