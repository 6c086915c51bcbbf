"""The picture of contributions shows what ranks held, and what is missing or counted twice.

python3 contributions_plots_test.py PROGRAM SOURCE_FOLDER
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM  # first: it adds the plots to the path

import contributions
import results


class ContributionPlots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def chart(self, *words, status=0):
        done = subprocess.run([PROGRAM.resolve(), "contributions", *words, "--json", "held.json"], cwd=self.path, capture_output=True, text=True,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        read = results.read([self.path / "held.json"])
        (chart,) = contributions.charts(read)
        return chart, read.contributions[0]

    def test_every_cell_is_drawn(self):
        chart, run = self.chart("all_reduce", "--ranks", "4")
        (axes,) = chart.figure.axes
        (mesh,) = axes.collections
        drawn = mesh.get_array().reshape(7 * 5 - 1, 4 * 5 - 1)
        for rank, records in enumerate(run.held):
            for number, held in enumerate(records):
                for element, times in enumerate(held["times"]):
                    for source, count in enumerate(times):
                        self.assertEqual(drawn[number * 5 + source, rank * 5 + element], (source + 1) * count)
        self.assertEqual(len(axes.patches), 4 * 6)  # a frame for each message
        self.assertEqual(len(axes.texts), 0)
        self.assertIn("correct after 6 messages to each rank", chart.alt)
        self.assertEqual([row[4] for row in chart.rows if row[1] == 6], [4] * 4)

    def test_mistakes_are_marked(self):
        chart, _ = self.chart("reduce_scatter", "--ranks", "4", "--mistake", "rank=2,message=3,kind=twice", status=1)
        self.assertEqual([text.get_text() for text in chart.figure.axes[0].texts], ["2", "2", "2"])
        self.assertIn("rank 2 holds 2 times the data of rank 0 in element 2", chart.alt)
        chart, _ = self.chart("all_reduce", "--ranks", "4", "--mistake", "rank=1,message=1,kind=drop", status=1)
        self.assertEqual([text.get_text() for text in chart.figure.axes[0].texts], ["×"] * 4)
        self.assertIn("rank 3 lacks the data of rank 0 in element 3", chart.alt)

    def test_the_command_draws_it(self):
        for ranks in ("1", "16"):
            subprocess.run([PROGRAM.resolve(), "contributions", "--ranks", ranks, "--plot", "held.svg"], cwd=self.path, capture_output=True, check=True,
                           timeout=100)
            self.assertIn("<svg", (self.path / "held.svg").read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
