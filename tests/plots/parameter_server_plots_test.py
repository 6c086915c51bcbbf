"""Plots of parameter servers: the drawn numbers equal the measured ones.

python3 parameter_server_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE

import loss
import page
import progress
import report_overview
import results
import scaling
import traffic

GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TRAIN = ["--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "4", "--steps", "6",
         "--clock", "unit", "--compute-time", "1", "--slow-rank", "1:3"]
MODES = {"bsp": [], "asp": [], "ssp": ["--staleness", "1"]}


class ParameterServerPlots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for mode, flags in MODES.items():
            cls.run_program("train", "ps", "--ranks", "6", "--servers", "2", "--mode", mode, *flags, *TRAIN, "--json", f"{mode}.json")
        cls.run_program("train", "serial", *TRAIN[:-2], "--json", "serial.json")
        cls.run_program("bench", "ps", "--workers", "2,4,8", "-b", "64K", "-e", "64K", "-n", "1", "-w", "0", "--clock", "unit",
                        "--device", "host", "--link", "10gbe", "--json", "bench.json")
        cls.results = results.read([cls.folder / f"{name}.json" for name in (*MODES, "serial", "bench")])

    @classmethod
    def run_program(cls, *words):
        done = subprocess.run([PROGRAM, *words], cwd=cls.folder, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"

    def test_runs_are_named_by_mode_and_servers(self):
        self.assertEqual(self.results.run_names()[:3], [
            "ps bsp 2 servers 6 ranks", "ps asp 2 servers 6 ranks", "ps ssp 1, 2 servers 6 ranks"])

    def test_a_synchronous_run_is_drawn_by_its_steps(self):
        run = self.results.trainings[0]
        seconds, steps, losses = progress.curve(run)
        self.assertEqual(losses, run.steps("loss"))
        self.assertEqual(steps, [1, 2, 3, 4, 5, 6])
        self.assertAlmostEqual(seconds[-1], sum(run.steps("seconds")))

    def test_asynchronous_runs_are_drawn_by_their_updates_in_order_of_time(self):
        run = self.results.trainings[1]
        seconds, steps, losses = progress.curve(run)
        first = [update for update in run.data["updates"] if update["server"] == 0]
        self.assertEqual(len(losses), 4 * 6)
        self.assertEqual(seconds, sorted(seconds))
        self.assertEqual(steps[-1], 6)
        self.assertEqual(losses[0], first[0]["loss"])
        self.assertAlmostEqual(losses[-1], sum(update["loss"] for update in first[-4:]) / 4)

    def test_a_worker_that_was_lost_leaves_a_gap(self):
        run = copy.deepcopy(self.results.trainings[1])
        for update in run.data["updates"]:
            if update["step"] == 5 and update["rank"] == 0:
                update["loss"] = None
        self.assertEqual(len(progress.curve(run)[2]), 4 * 6 - 1)

    def test_the_chart_shows_the_lead_of_workers(self):
        chart = next(chart for chart in progress.charts(self.results) if len(chart.rows) == 4)
        ahead = {row[0].split()[1].strip(","): row[4] for row in chart.rows if row[0].startswith("ps")}
        self.assertEqual(ahead["bsp"], 0)
        self.assertEqual(ahead["ssp"], 1)
        self.assertGreater(ahead["asp"], 1)
        self.assertEqual([axes.get_xlabel() for axes in chart.figure.axes], ["units of time", "steps of all workers"])

    def test_only_synchronous_runs_are_compared_with_one_rank(self):
        bsp, asp, ssp, serial = self.results.trainings
        self.assertIs(loss.reference_of(bsp, self.results), serial)
        self.assertIsNone(loss.reference_of(asp, self.results))
        (chart,) = traffic.charts(self.results)
        self.assertEqual(len(chart.rows), 6)

    def test_unchecked_elements_are_not_wrong(self):
        changed = copy.deepcopy(self.results)
        for entry in changed.benchmarks[0].data["benchmarks"]:
            entry["wrong"] = -1
        self.assertNotIn("Wrong elements", report_overview.verdict(changed).finding)
        checked = report_overview.verdict(self.results)
        self.assertIn(f"Wrong elements in {len(list(self.results.benchmarks[0].points()))} measurements of collectives: 0.",
                      checked.finding)
        self.assertIn('<p class="finding">', page.section(checked))
        changed.benchmarks[0].data["benchmarks"][0]["wrong"] = 3
        self.assertIn("Wrong elements in 1 measurements of collectives: 3.", report_overview.verdict(changed).finding)
        self.assertIn('<p class="finding wrong">', page.section(report_overview.verdict(changed)))

    def test_scaling_lies_on_the_closed_forms(self):
        (chart,) = scaling.charts(self.results)
        self.assertEqual(chart.figure.axes[0].get_xlabel(), "workers")
        self.assertEqual({row[0] for row in chart.rows},
                         {"ps_1_server", "ps_2_servers", "ps_N_servers", "ps_colocated", "ring", "double_binary_tree"})
        for row in chart.rows:
            if row[0] != "double_binary_tree":  # its closed form is exact only for few ranks
                self.assertEqual(row[-1], "+0.00", row)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
