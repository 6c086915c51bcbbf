"""Plots of dispatchers: the drawn numbers are those of the file, and dotted lines those of its crossovers.

python3 dispatch_plots_test.py PROGRAM SOURCE_FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import dispatch
import report
import results

LINKS = [f"alpha={latency}us,beta=20GB/s,node=4,node-alpha=1us,node-beta=80GB/s" for latency in (1, 10)]


class Dispatch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name) / "a.json"

    def charts(self, *words):
        subprocess.run([PROGRAM, "bench", "moe", "--experts", "16", "--tokens", "1024", "--width", "1024", *words, "--json", self.path],
                       check=True, capture_output=True, timeout=200)
        self.data = json.loads(self.path.read_text())
        return dispatch.charts(results.read([self.path]))

    def lines(self, axes):
        """{label: [(x, y)]} of lines with a name."""
        return {line.get_label(): list(zip(*line.get_data())) for line in axes.lines if not line.get_label().startswith("_")}

    def entries(self, method, **fields):
        return [entry for entry in self.data["benchmarks"] if entry["method"] == method and all(entry[k] == v for k, v in fields.items())]

    def test_times_are_drawn_over_the_latency_with_their_crossing(self):
        (chart,) = self.charts("--ranks", "8", "--per-token", "2", "--link", LINKS[0], "--link", LINKS[1])
        (axes,) = chart.figure.axes
        lines = self.lines(axes)
        for method in dispatch.METHODS:
            drawn = [(entry["latency_seconds"], 1e6 * entry["dispatch_seconds"]) for entry in self.entries(method)]
            self.assertEqual(len(drawn), 2)
            for (x, y), (wanted_x, wanted_y) in zip(lines[method], drawn, strict=True):
                self.assertAlmostEqual(x / wanted_x, 1, 9)
                self.assertAlmostEqual(y / wanted_y, 1, 9)
        (crossing,) = [c for c in self.data["moe_crossovers"] if c["method"] == "two_level"]
        dotted = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
        self.assertEqual(dotted, [c["at"] for c in self.data["moe_crossovers"] if c["over"] == "latency"])
        self.assertIn(crossing["at"], dotted)
        self.assertIn("two_level is faster than all_to_all above 6.55 µs of latency between nodes", chart.alt)

    def test_without_latencies_it_draws_over_experts_per_token_in_panels(self):
        (chart,) = self.charts("--ranks", "4,8", "--per-token", "2,4", "--link", LINKS[0])
        self.assertEqual([axes.get_title(loc="left") for axes in chart.figure.axes], ["even, 4 ranks, 1024 tokens", "even, 8 ranks, 1024 tokens"])
        for axes, ranks in zip(chart.figure.axes, (4, 8)):
            self.assertEqual(axes.get_xlabel(), "experts per token")
            drawn = self.lines(axes)["two_level"]
            self.assertEqual([x for x, _ in drawn], [2, 4])
            self.assertAlmostEqual(drawn[0][1] / (1e6 * self.entries("two_level", ranks=ranks, per_token=2)[0]["dispatch_seconds"]), 1, 9)
        self.assertEqual(len(chart.rows), len(self.data["benchmarks"]))

    def test_bars_show_the_price_of_skew(self):
        _, chart = self.charts("--ranks", "8", "--per-token", "2", "--skew", "even,zipf:0,zipf:1", "--link", LINKS[0])
        (axes,) = chart.figure.axes
        heights = sorted(bar.get_height() for bar in axes.patches)
        self.assertEqual(heights, sorted(price["times"] for price in self.data["moe_prices"]))
        self.assertEqual([label.get_text() for label in axes.get_xticklabels()], ["zipf:0", "zipf:1"])
        worst = max(self.data["moe_prices"], key=lambda price: price["times"])
        self.assertIn(f"{worst['method']}: {worst['times']:.2f} times", chart.alt)

    def test_steps_with_pairs_are_drawn_over_the_link(self):
        links = [f"alpha=1us,beta={speed}GB/s" for speed in (80, 20)]
        _, chart = self.charts("--ranks", "2,4", "--per-token", "2", "--method", "all_to_all", "--link", links[0], "--link", links[1], "--pairs",
                               "--layers", "4", "--expert-width", "512")
        self.assertEqual([axes.get_title(loc="left") for axes in chart.figure.axes],
                         ["even, 2 ranks, K 2, 1024 tokens", "even, 4 ranks, K 2, 1024 tokens"])
        pairs = self.data["moe_pairs"]
        for axes, ranks in zip(chart.figure.axes, (2, 4)):
            own = sorted((pair for pair in pairs if pair["ranks"] == ranks), key=lambda pair: pair["bytes_per_second"])
            for label, step in (("one by one", "one_by_one"), ("in turns", "in_turns")):
                drawn = self.lines(axes)[label]
                self.assertEqual([y for _, y in drawn], [pair[step]["tokens_per_second"] for pair in own])
                for (x, _), speed in zip(drawn, (20, 80), strict=True):
                    self.assertAlmostEqual(x, speed, 9)
        best = max(pair["one_by_one"]["seconds"] / pair["in_turns"]["seconds"] for pair in pairs)
        self.assertIn(f"up to {best:.2f} times as fast", chart.alt)
        self.assertEqual(len(chart.rows), 4)

    def test_the_report_says_what_was_found(self):
        first, second = self.charts("--ranks", "8", "--per-token", "2", "--skew", "even,zipf:1", "--link", LINKS[0], "--link", LINKS[1])
        section = report.dispatch_section(results.read([self.path]))
        self.assertEqual(section.finding, f"{first.alt} {second.alt}")
        self.assertIn(section.title, [own.title for own in report.sections(results.read([self.path]))])

    def test_the_program_draws_it(self):
        self.charts("--ranks", "4", "--per-token", "2", "--link", LINKS[0])
        done = subprocess.run([PROGRAM, "plot", "dispatch", self.path, "-o", self.path.with_suffix(".svg")], capture_output=True, text=True,
                              timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.path.with_suffix(".svg").read_text().startswith("<?xml"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
