"""The pictures and the report of a history show the file's times, changes and outliers; a file that does not hold together is refused.

python3 history_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import json
import pathlib
import sys
import tempfile
import unittest

import plots_setting  # first: it adds the plots to the path

import chart
import history
import report
import results

NIGHTS, CHANGED, BAD = 30, 12, 20


def row(name, scale, changes):
    """A row at 100 µs times `scale`, 10 % slower since a night if it changes, and with one bad night."""
    points = [{"night": night, "us": scale * (110 if changes and night >= CHANGED else 100), "outlier": night == BAD} for night in range(NIGHTS)]
    points[BAD]["us"] *= 1.5
    change = {"night": CHANGED, "previous": CHANGED - 1, "before_us": 100 * scale, "after_us": 110 * scale, "change": 0.1, "chance": 1e-9, "chosen": "tree before, ring now",
              "accepted": False, "open": True}
    return {"name": name, "level_us": scale * (110 if changes else 100), "base_us": 100 * scale, "slower": changes, "points": points,
            "changes": [change] * changes}


def made():
    nights = [{"time": f"2026-10-{night + 1:02}T02:00:00Z", "label": f"2026-10-{night + 1:02}", "file": f"{night}.json", "host": "a",
               "changed": ["host: a before, b <now>"] if night == CHANGED else []} for night in range(NIGHTS)]
    rows = [row(f"all_reduce/{algorithm}/threads/ranks:2/bytes:{size}/type:f32", size / 1024, algorithm == "ring")
            for algorithm in ("direct", "ring") for size in (1024, 4096)]
    return {"schema": "lockstep.history/1", "command": "lockstep history", "effect": 0.05, "nights": nights, "wrong": [], "rows": rows}


class HistoryPlots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, data):
        path = self.folder / "history.json"
        path.write_text(json.dumps(data))
        return results.read([path])

    def test_a_picture_for_each_family_of_rows(self):
        direct, ring = history.charts(self.read(made()))
        self.assertEqual((direct.title, ring.title), ("History of all_reduce/direct/threads/type:f32", "History of all_reduce/ring/threads/type:f32"))
        self.assertIn("2 of 2 rows are slower. Most: 1 KiB, 110 µs instead of 100 µs, +10.0 % on 2026-10-13.", ring.alt)
        self.assertIn("0 of 2 rows are slower.", direct.alt)
        axes, = ring.figure.axes
        lines = {line.get_label(): line for line in axes.lines}
        for size in ("1 KiB", "4 KiB"):
            self.assertEqual(list(lines[size].get_xdata()), [night for night in range(NIGHTS) if night != BAD])
            self.assertEqual([round(ratio, 6) for ratio in lines[size].get_ydata()], [1.0] * CHANGED + [1.1] * (NIGHTS - CHANGED - 1))
        crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata()) == 1]
        self.assertEqual([(list(line.get_xdata()), round(line.get_ydata()[0], 6)) for line in crosses], [([BAD], 1.65)] * 2)
        self.assertIn([CHANGED - 0.5] * 2, [list(line.get_xdata()) for line in axes.lines])
        self.assertEqual(ring.rows[0][2:], ("100.00", "110.00", "+10.0 %", "+10.0 % on 2026-10-13", "slower", "2026-10-21"))
        chart.save(ring.figure, str(self.folder / "ring.svg"))

    def test_the_report_tells_the_night_and_what_else_changed(self):
        data = made()
        text = report.text_of(self.read(data), "Report")
        for part in ("2 of 4 rows are slower than before, on 30 nights from 2026-10-01 to 2026-10-30.", "host: a before, b &lt;now&gt;; auto chose tree before, ring now<",
                     "2 of all_reduce/ring/threads/type:f32", "Rows of the history that are slower than before: 2 of 4.", "finding wrong"):
            self.assertIn(part, text)
        for one in data["rows"]:
            one["slower"] = False
        self.assertNotIn("finding wrong", report.text_of(self.read(data), "Report"))

    def test_what_does_not_hold_together_is_refused(self):
        def refused(change):
            data = copy.deepcopy(made())
            change(data)
            with self.assertRaises(results.BadInput) as caught:
                self.read(data)
            self.assertIn("history.json", str(caught.exception))
        refused(lambda data: data["nights"].pop())
        refused(lambda data: data.update(nights=[]))
        refused(lambda data: data.update(rows=[]))
        refused(lambda data: data["rows"][0].update(points=[]))
        refused(lambda data: data["rows"][0]["points"].reverse())
        refused(lambda data: data["rows"][0]["points"][3].update(us=0))
        refused(lambda data: data["rows"][2]["changes"][0].update(night=NIGHTS))
        refused(lambda data: data["rows"][2].update(slower="no"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
