"""Heat maps of factorings: the drawn numbers are those of the file, and the marks those of its memory limit.

python3 factorings_plots_test.py PROGRAM SOURCE_FOLDER
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

from matplotlib.patches import Polygon, Rectangle

import factorings
import report
import results
from chart import time_text

AXES = ("tp", "cp", "pp", "dp")


class Factorings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name) / "a.json"
        cls.run_bench("--memory-limit", "6M")
        cls.data = json.loads(cls.path.read_text())
        (cls.chart,) = factorings.charts(results.read([cls.path]))
        cls.times, cls.memories = cls.chart.figure.axes[:2]

    @classmethod
    def run_bench(cls, *words):
        subprocess.run([PROGRAM, "bench", "3d", "--ranks", "8", "--cp", "1,2", "--tp", "1,2,4,8", *words, "--json", cls.path], check=True,
                       capture_output=True, timeout=200)

    def cells(self, axes):
        """{(tp, cp, pp): value} of an image."""
        columns = [tuple(int(word) for word in label.get_text().split() if word.isdigit()) for label in axes.get_xticklabels()]
        rows = [int(label.get_text().split()[1]) for label in axes.get_yticklabels()]
        image = axes.images[0].get_array()
        return {(*column, row): float(image[y][x]) for x, column in enumerate(columns) for y, row in enumerate(rows)
                if image.mask is False or not image.mask[y][x] and not math.isnan(image[y][x])}

    def test_each_cell_shows_its_entry(self):
        entries = {(entry["tp"], entry["cp"], entry["pp"]): entry for entry in self.data["benchmarks"]}
        times, memories = self.cells(self.times), self.cells(self.memories)
        self.assertEqual(set(times), set(entries))
        for place, entry in entries.items():
            self.assertAlmostEqual(times[place] / (1e6 * entry["step_seconds"]), 1, 6)
            self.assertEqual(memories[place], entry["peak_bytes"]["total"])
        texts = {text.get_text() for text in self.times.texts}
        for entry in entries.values():
            self.assertIn(f"{time_text(1e6 * entry['step_seconds'])}\ndp {entry['dp']}", texts)

    def test_marks_are_those_that_do_not_fit_and_the_fastest(self):
        too_large = sum(not entry["fits"] for entry in self.data["benchmarks"])
        self.assertGreater(too_large, 0)
        for axes in (self.times, self.memories):
            self.assertEqual(sum(isinstance(patch, Polygon) for patch in axes.patches), too_large)
            (outline,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
            column = [label.get_text() for label in axes.get_xticklabels()][round(outline.get_x() + 0.48)]
            row = [label.get_text() for label in axes.get_yticklabels()][round(outline.get_y() + 0.48)]
            fastest = self.data["fastest"]
            self.assertEqual((column, row), (f"tp {fastest['tp']}\ncp {fastest['cp']}", f"pp {fastest['pp']}"))
        self.assertIn("tp {tp}, cp {cp}, pp {pp}, dp {dp} with".format(**self.data["fastest"]), self.chart.alt)

    def test_the_table_has_all_parts(self):
        for row, entry in zip(self.chart.rows, self.data["benchmarks"]):
            self.assertEqual(row[:4], tuple(entry[axis] for axis in AXES))
            self.assertAlmostEqual(sum(map(float, row[6:12])), 100, delta=0.4)
            self.assertEqual(row[-1], entry["peak_bytes"]["total"])

    def test_the_report_says_why_the_next_ones_lose(self):
        section = report.factorings_section(results.read([self.path]))
        self.assertIn(self.data["not_chosen"][0]["reason"], section.finding)

    def test_without_a_fit_nothing_is_outlined(self):
        self.run_bench("--memory-limit", "1K")
        self.addCleanup(self.run_bench, "--memory-limit", "6M")
        (chart,) = factorings.charts(results.read([self.path]))
        self.assertIn("None of", chart.alt)
        self.assertFalse([patch for patch in chart.figure.axes[0].patches if isinstance(patch, Rectangle)])

    def test_several_numbers_of_ranks_are_bars(self):
        subprocess.run([PROGRAM, "bench", "3d", "--ranks", "2,4", "--cp", "1", "--pp", "1", "--no-overlap", "--per-block", "--json", self.path],
                       check=True, capture_output=True, timeout=200)
        self.addCleanup(self.run_bench, "--memory-limit", "6M")
        file, entries = results.read([self.path]), json.loads(self.path.read_text())["benchmarks"]
        (chart,) = factorings.charts(file)
        (axes,) = chart.figure.axes
        self.assertEqual(len(chart.rows), len(entries))
        fastest = [next(entry for entry in entries if math.prod(entry[axis] for axis in AXES) == ranks) for ranks in (2, 4)]
        _, labels = axes.get_legend_handles_labels()
        for place, entry in enumerate(fastest):
            heights = dict(zip(labels, (bars[place].get_height() for bars in axes.containers)))
            self.assertAlmostEqual(sum(heights.values()) / (1e3 * entry["step_seconds"]), 1, 6)
            self.assertAlmostEqual(heights["computing"], 1e3 * entry["compute_seconds"], 9)
            self.assertAlmostEqual(heights["exposed along dp"], 1e3 * entry["exposed_by_axis"]["dp"], 9)
            words = axes.get_xticklabels()[place].get_text().split("\n")
            self.assertEqual(words, [f"{(2, 4)[place]}", *(f"{axis} {entry[axis]}" for axis in AXES if entry[axis] > 1)])
        self.assertIn("no block is computing alone", chart.alt)
        self.assertIn(" a block and ", chart.alt)
        self.assertEqual(axes.get_ylabel(), "time of a block (ms)")
        self.assertIn(chart.alt, report.factorings_section(file).finding)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
