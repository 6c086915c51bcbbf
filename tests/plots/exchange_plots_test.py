"""Plots of exchanges: the drawn numbers are those of the file, and dotted lines those of its crossovers.

python3 exchange_plots_test.py PROGRAM SOURCE_FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import exchange
import report
import results

LINKS = [f"alpha=10us,beta={speed}GB/s" for speed in (10, 0.1)]


class Exchange(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name) / "a.json"
        text = pathlib.Path(folder.name) / "text"
        text.write_text("".join(chr(97 + i * i % 23) for i in range(8000)))
        words = ["--method", "none,int8,onebit", "--ranks", "2,4", "--encoding-rate", "2", "--link", LINKS[0], "--link", LINKS[1], "--train",
                 "--steps", "30", "--seeds", "2", "--sequence-length", "16", "--global-batch", "2", "--data", text]
        subprocess.run([PROGRAM, "bench", "exchange", *words, "--json", cls.path], check=True, capture_output=True, timeout=200)
        cls.data = json.loads(cls.path.read_text())
        cls.times, cls.losses = exchange.charts(results.read([cls.path]))

    def lines(self, axes):
        return {line.get_label(): list(zip(*line.get_data())) for line in axes.lines if not line.get_label().startswith("_")}

    def test_times_are_drawn_over_the_bandwidth(self):
        self.assertEqual([axes.get_title(loc="left") for axes in self.times.figure.axes], ["2 ranks, latency 10 µs", "4 ranks, latency 10 µs"])
        for axes, ranks in zip(self.times.figure.axes, (2, 4)):
            lines = self.lines(axes)
            for method in ("none", "int8", "onebit"):
                own = sorted((entry["bytes_per_second"], entry["processor_seconds"] + entry["link_seconds"])
                             for entry in self.data["benchmarks"] if (entry["method"], entry["ranks"]) == (method, ranks))
                self.assertEqual(len(own), 2)
                for (x, y), (speed, seconds) in zip(lines[method], own, strict=True):
                    self.assertAlmostEqual(x / (speed / 1e9), 1, 9)
                    self.assertAlmostEqual(y / (1e6 * seconds), 1, 9)
            dotted = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
            self.assertEqual(dotted, [c["bytes_per_second"] / 1e9 for c in self.data["exchange_crossovers"] if c["ranks"] == ranks])
            self.assertEqual(len(dotted), 2)
        self.assertIn("2 ranks: onebit is faster than none below", self.times.alt)
        self.assertEqual(len(self.times.rows), len(self.data["benchmarks"]))

    def test_losses_are_drawn_over_steps_and_over_bytes(self):
        by_step, by_bytes = self.losses.figure.axes
        for training in self.data["exchange_trainings"]:
            over_steps, over_bytes = self.lines(by_step)[training["method"]], self.lines(by_bytes)[training["method"]]
            # A tenth of 30 steps: means of three.
            first, second = training["losses"]
            middle = sum(first[9:12] + second[9:12]) / 6
            self.assertEqual(over_steps[10][0], 11)
            self.assertAlmostEqual(over_steps[10][1], middle, 9)
            self.assertEqual(over_bytes[10][0], 11 * training["sent_bytes"])
            self.assertAlmostEqual(over_bytes[10][1], middle, 9)
            row = next(row for row in self.losses.rows if row[0] == training["method"])
            self.assertEqual(row[4:], tuple(f"{value:.4f}" for value in (sum(training["validation_losses"]) / 2,
                                                                         *sorted(training["validation_losses"]))))
        # The bands reach from one seed to the other.
        band = by_step.collections[0].get_paths()[0].vertices
        losses = [sum(training[9:12]) / 3 for training in self.data["exchange_trainings"][0]["losses"]]
        at = sorted({round(y, 9) for x, y in band if x == 11})
        self.assertEqual(at, [round(loss, 9) for loss in sorted(losses)])

    def test_a_report_has_a_section(self):
        (own,) = [own for own in report.sections(results.read([self.path])) if own.title == "Compressed gradients"]
        self.assertEqual(len(own.charts), 2)

    def test_a_file_without_its_losses_is_refused(self):
        broken = {**self.data, "exchange_trainings": [{**self.data["exchange_trainings"][0], "losses": []}]}
        path = self.path.with_name("broken.json")
        path.write_text(json.dumps(broken))
        done = subprocess.run([PROGRAM, "plot", "exchange", path, "--output", self.path.with_name("a.svg")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("none: a training without all of its losses", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
