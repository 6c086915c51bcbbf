"""The picture of links shows the file's figures and frames what is slow; a file that does not hold together is refused.

python3 pairs_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM  # first: it adds the plots to the path

import chart
import pairs
import results

RANKS = 4


class PairsPlots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([PROGRAM, "bench", "pairs", "--ranks", str(RANKS), "--clock", "unit", "--link", "hdr", "--json", "p.json"],
                       cwd=cls.folder, capture_output=True, check=True, timeout=100)
        cls.made = json.loads((cls.folder / "p.json").read_text())

    def read(self, data):
        path = self.folder / "changed.json"
        path.write_text(json.dumps(data))
        return results.read([path])

    def slow(self, part, a, b):
        entry = {"part": part, "from": a, "to": b, "hosts": ["a"], "in_host": True, "ratio": 10, "ratios": {"one way": 10}, "text": f"{part} {a} {b}"}
        return {**copy.deepcopy(self.made), "slow_links": [entry]}

    def test_cells_are_the_figures_of_the_file(self):
        data = copy.deepcopy(self.made)
        data["links"][0].update(gb_per_s=3, back_gb_per_s=2)
        picture, = pairs.charts(self.read(data))
        a, b = data["links"][0]["from"], data["links"][0]["to"]
        latency, one_way, both_ways = [axes for axes in picture.figure.axes]
        texts = {tuple(map(int, text.get_position()[::-1])): text.get_text() for text in one_way.texts}
        self.assertEqual((texts[a, b], texts[b, a]), ("3", "2"))
        self.assertEqual(len(texts), RANKS * (RANKS - 1))
        self.assertEqual({text.get_text() for text in latency.texts}, {f"{self.made['links'][0]['latency_us']:.3g}"})
        self.assertIn("No link is slow.", picture.alt)
        self.assertEqual(len(picture.rows), RANKS * (RANKS - 1) // 2)
        chart.save(picture.figure, str(self.folder / "p.svg"))

    def test_slow_links_are_framed(self):
        for part, a, b, wanted in (("unit", 1, 1, {(1, o) for o in (0, 2, 3)} | {(o, 1) for o in (0, 2, 3)}), ("sending", 2, 2, {(2, 0), (2, 1), (2, 3)}),
                                   ("receiving", 2, 2, {(0, 2), (1, 2), (3, 2)}), ("cable", 0, 3, {(0, 3), (3, 0)}), ("one_way", 3, 0, {(3, 0)})):
            read = self.read(self.slow(part, a, b))
            picture, = pairs.charts(read)
            framed = [{(round(frame.get_y() + 0.45), round(frame.get_x() + 0.45)) for frame in axes.patches} for axes in picture.figure.axes]
            self.assertEqual(framed, [set(), wanted, set()])
            self.assertIn(f"Slow: {part} {a} {b}.", picture.alt)

    def test_what_does_not_hold_together_is_refused(self):
        def refused(change):
            data = copy.deepcopy(self.made)
            change(data)
            with self.assertRaises(results.BadInput) as caught:
                self.read(data)
            self.assertIn("changed.json", str(caught.exception))
        refused(lambda data: data["ranks"].pop())
        refused(lambda data: data["ranks"].reverse())
        refused(lambda data: data.pop("ranks"))
        refused(lambda data: data["links"][0].update({"from": RANKS}))
        refused(lambda data: data["links"][0].update(latency_us=-1))
        refused(lambda data: data["links"][0].pop("class"))
        refused(lambda data: data.update(slow_links=self.slow("unit", RANKS, RANKS)["slow_links"]))

    def test_links_without_cost_have_no_picture_of_their_own(self):
        data = copy.deepcopy(self.made)
        for link in data["links"]:
            link.update(latency_us=0, gb_per_s=0, back_gb_per_s=0, both_ways_gb_per_s=0)
        self.assertEqual(pairs.charts(self.read(data)), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
