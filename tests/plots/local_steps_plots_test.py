"""The plot of local steps: its curves and bytes are those of the result files, and a run whose last step sends nothing is refused.

python3 local_steps_plots_test.py PROGRAM SOURCE_FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import local_steps
import loss
import report
import results

GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TRAIN = ["ddp", "--ranks", "2", "--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "4"]
RUNS = {"together": ["--steps", "6"], "alone": ["--steps", "6", "--local-steps", "3"],
        "fragments": ["--steps", "6", "--local-steps", "3", "--outer-fragments", "2"], "between": ["--steps", "6", "--local-steps", "4"]}


class LocalSteps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, words in RUNS.items():
            done = subprocess.run([PROGRAM, "train", *TRAIN, *words, "--json", f"{name}.json"], cwd=cls.folder, capture_output=True, text=True,
                                  timeout=200)
            assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"

    def read(self, *names):
        return results.read([self.folder / f"{name}.json" for name in names])

    def test_bytes_are_those_of_the_weights_once_in_a_window(self):
        (chart,) = local_steps.charts(self.read("together", "alone", "fragments"))
        line, *_ = [line for line in json.loads((self.folder / "together.json").read_text())["theory"] if line["quantity"] == "peak_bytes.gradients"]
        of_gradients = line["measured"]  # 2 (P - 1) / P is 1 for two ranks
        self.assertEqual([row[:3] for row in chart.rows],
                         [("ddp 2 ranks", "-", f"{of_gradients:.0f}"), ("ddp 3 local steps 2 ranks", 3, f"{of_gradients / 3:.0f}"),
                          ("ddp 3 local steps 2 fragments 2 ranks", 3, f"{of_gradients / 3:.0f}")])

    def test_curves_are_means_of_the_losses(self):
        (chart,) = local_steps.charts(self.read("together", "alone"))
        over_steps, over_bytes = chart.figure.axes
        for name, curve, same in zip(("together", "alone"), over_steps.lines, over_bytes.lines):
            losses = [step["loss"] for step in json.loads((self.folder / f"{name}.json").read_text())["steps"]]
            self.assertAlmostEqual(curve.get_ydata()[0], losses[0])
            self.assertAlmostEqual(curve.get_ydata()[-1], sum(losses) / len(losses))
            self.assertEqual(list(curve.get_ydata()), list(same.get_ydata()))
            self.assertAlmostEqual(same.get_xdata()[-1] / same.get_xdata()[0], len(losses))

    def test_the_report_has_a_section(self):
        found = {own.title: own for own in report.sections(self.read("together", "alone"))}
        self.assertEqual([chart.title for chart in found["Local steps"].charts], ["Loss with local steps"])
        self.assertIn("ddp 3 local steps 2 ranks ends at", found["Local steps"].finding)
        self.assertNotIn("Optimizers", found)

    def test_a_mean_is_over_few_steps(self):
        self.assertEqual(local_steps.smooth(list(range(30)))[-1], sum(range(20, 30)) / 10)

    def test_a_last_step_without_an_exchange_is_refused(self):
        with self.assertRaisesRegex(results.BadInput, "multiple of 4 steps"):
            local_steps.charts(self.read("together", "between"))

    def test_without_local_steps_there_is_nothing_to_draw(self):
        self.assertEqual(local_steps.charts(self.read("together")), [])

    def test_losses_are_not_compared_with_one_rank(self):
        alone = self.read("alone", "together")
        self.assertFalse(alone.trainings[0].equals_one_rank)
        self.assertIsNone(loss.reference_of(alone.trainings[0], alone))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
