"""The picture and the report's section of a burn-in show the file's figures, verdicts and findings; a file that does not hold together is refused.

python3 burn_in_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM  # first: it adds the plots to the path

import burn_in
import chart
import report
import results

RANKS = 3


class BurnInPlots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        done = subprocess.run([PROGRAM, "burn-in", "--ranks", str(RANKS), "--passes", "2", "--effect", "100", "--fault",
                               "rank=1,op=2,kind=flip-gradient", "--json", "b.json"], cwd=cls.folder, capture_output=True, text=True, timeout=100)
        if done.returncode != 1:
            raise AssertionError(done.stdout + done.stderr)
        cls.failed = json.loads((cls.folder / "b.json").read_text())
        cls.passed = {**copy.deepcopy(cls.failed), "verdict": "pass", "findings": []}
        cls.passed["hosts"][0]["verdict"] = "pass"

    def read(self, data):
        path = self.folder / "changed.json"
        path.write_text(json.dumps(data))
        return results.read([path])

    def counters(self, test, key):
        rows = {row["name"]: row[key] for row in self.failed["benchmarks"] if row["run_type"] == "iteration" and f"burn_in/{test}/" in row["name"]}
        return [next(value for name, value in rows.items() if f"/rank:{rank}/" in f"{name}/") for rank in range(RANKS)]

    def test_bars_are_the_figures_of_the_file(self):
        picture, = burn_in.charts(self.read(self.failed))
        products, copies = picture.figure.axes
        self.assertEqual([bar.get_width() for bar in products.patches], self.counters("product", "gflop_per_s"))
        self.assertEqual([bar.get_width() for bar in copies.patches], self.counters("copy", "gb_per_s"))
        self.assertEqual(len(picture.rows), RANKS)
        self.assertIn(f"{self.failed['hosts'][0]['host']}: fail.", picture.alt)
        chart.save(picture.figure, str(self.folder / "b.svg"))

    def test_colours_are_the_verdicts(self):
        for data in (self.failed, self.passed):
            picture, = burn_in.charts(self.read(data))
            colours = {chart.matplotlib.colors.to_hex(bar.get_facecolor()).upper() for bar in picture.figure.axes[0].patches}
            self.assertEqual(colours, {burn_in.OF_VERDICT[data["verdict"]].upper()})
        self.assertIn("All hosts pass.", picture.alt)

    def sections(self, data):
        return {own.title: own for own in report.sections(self.read(data))}

    def test_the_section_has_verdict_findings_and_next_steps(self):
        own = self.sections(self.failed)["Burn-in"]
        self.assertFalse(own.right)
        self.assertIn(f"Verdict: fail. 0 of 1 hosts pass; 2 passes, {self.failed['steps_compared']} repeated training steps", own.finding)
        for found in self.failed["findings"]:
            self.assertIn(found["text"], own.finding)
            self.assertIn(found["next"].split("'")[0], own.body)
        self.assertEqual([own.title for own in own.charts], ["Speed of each rank", "Links between ranks"])
        passed = self.sections(self.passed)["Burn-in"]
        self.assertTrue(passed.right)
        self.assertNotIn("Found", passed.finding)

    def test_the_page_says_it_first(self):
        self.assertFalse(report.verdict(self.read(self.failed)).right)
        self.assertIn("Machines, by burn-in: fail.", report.verdict(self.read(self.failed)).finding)
        self.assertTrue(report.verdict(self.read(self.passed)).right)
        report.text_of(self.read(self.failed), "Burn-in")

    def test_files_that_do_not_hold_together_are_refused(self):
        def wrong(change):
            data = copy.deepcopy(self.failed)
            change(data)
            with self.assertRaises(results.BadInput):
                self.read(data)
        wrong(lambda data: data["hosts"][0]["ranks"].pop())
        wrong(lambda data: data.update(verdict="good"))
        for key in ("verdict", "passes", "steps_compared", "hosts", "findings"):
            wrong(lambda data, key=key: data.pop(key))
        wrong(lambda data: data["findings"][0].pop("next"))
        wrong(lambda data: data["benchmarks"].remove(next(row for row in data["benchmarks"] if "burn_in/copy/" in row["name"])))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
