"""The sliders of lessons' pages compute what the program's closed forms compute.

python3 play_test.py PROGRAM SOURCE_FOLDER NODE
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from page_browser import browse

PROGRAM, SOURCE, NODE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3]
FEWEST_POINTS = 200  # of each formula
TOLERANCE = 1e-12

# Evaluates the page's formulas at the points on standard input.
EVALUATE = """
const {FORMULAS} = require(process.argv[2]);
const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify({names: Object.keys(FORMULAS), values: asked.map(([name, inputs]) => FORMULAS[name](inputs))}));
"""


def program(*words, folder, status=0):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


class Play(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name)
        cls.formulas = json.loads(program("lesson", "--tables", folder=cls.path))["formulas"]
        plays = [{"formula": formula["formula"], "sliders": [formula["inputs"][0]["name"]], "over": formula["inputs"][0]["name"]}
                 for formula in cls.formulas]
        cls.page = cls.page_of(*plays)
        (script,) = re.findall(r'<script id="play_formulas">(.*?)</script>', cls.page, re.DOTALL)
        (cls.path / "play_formulas.js").write_text(script)
        (cls.path / "evaluate.js").write_text(EVALUATE)

    @classmethod
    def write(cls, *plays):
        (cls.path / "01_sliders").mkdir(exist_ok=True)
        parts = "\n\n".join(play if isinstance(play, str) else f"<!-- play {json.dumps(play)} -->" for play in plays)
        (cls.path / "01_sliders/lesson.md").write_text(f"# 01 Sliders\n\n## What if\n\n{parts}\n")

    @classmethod
    def page_of(cls, *plays):
        cls.write(*plays)
        program("lesson", "01_sliders", "--html", folder=cls.path)
        return (cls.path / "out/lessons/01_sliders/lesson.html").read_text()

    def differences(self, file):
        """(values compared, formulas and outputs that differ)"""
        points = [(formula["formula"], point) for formula in self.formulas for point in formula["points"]]
        done = subprocess.run([NODE, self.path / "evaluate.js", file], input=json.dumps([[name, point["inputs"]] for name, point in points]),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["names"], [formula["formula"] for formula in self.formulas])
        compared, different = 0, set()
        for (name, point), values in zip(points, answer["values"], strict=True):
            self.assertEqual(values.keys(), point["outputs"].keys())
            for output, wanted in point["outputs"].items():
                compared += 1
                found = values[output]
                if (found is None or wanted is None) and found != wanted or wanted is not None and not math.isclose(found, wanted, rel_tol=TOLERANCE):
                    different.add((name, output))
        return compared, different

    def test_the_page_computes_what_the_program_computes(self):
        self.assertGreaterEqual(len(self.formulas), 7)
        for formula in self.formulas:
            self.assertGreaterEqual(len(formula["points"]), FEWEST_POINTS, formula["formula"])
            for name in formula["points"][0]["outputs"]:
                values = {point["outputs"][name] for point in formula["points"]}
                self.assertGreater(len(values - {None}), 1, f"{formula['formula']}/{name} is always {values}")
        compared, different = self.differences(self.path / "play_formulas.js")
        self.assertGreaterEqual(compared, FEWEST_POINTS * len(self.formulas))
        self.assertEqual(different, set())

    def test_a_wrong_formula_is_found(self):
        text = (self.path / "play_formulas.js").read_text()
        for old, new, output in (("2 * (p - 1) * (a +", "2 * p * (a +", ("all_reduce", "ring")), ("(m + p - 1)", "m", ("pipeline", "gpipe")),
                                 ("part(3)", "part(2)", ("zero", "stage_2")), ("Math.ceil(count / p)", "count / p", ("buckets", "last")),
                                 ("m % p === 0", "true", ("pipeline", "interleaved")), ("Math.max(highest, ...", "Math.max(", ("ring_attention", "highest")),
                                 ("sum *= shrink;", "", ("ring_attention", "sum")), ("weighted *= shrink;", "", ("ring_attention", "out")),
                                 ("rank - s + ranks", "rank + s", ("ring_attention", "block")), ("key <= query", "true", ("ring_attention", "second_score")),
                                 ("arrival <= k ?", "arrival < k ?", ("ring_trip", "holds")), ("(r - 1 - k + 2 * p)", "(r - k + 2 * p)", ("ring_trip", "leaving")),
                                 ("(r - 1 - c + 2 * p)", "(r - c + 2 * p)", ("ring_trip", "count")),
                                 ("if (!sendsFirst(message)) ", "if (sendsFirst(message)) ", ("waiting_sends", "rounds")),
                                 ("before.push(message + 1)", "before.push(message + 2)", ("waiting_sends", "rounds"))):
            with self.subTest(old):
                self.assertIn(old, text)
                (self.path / "wrong.js").write_text(text.replace(old, new, 1))
                self.assertIn(output, self.differences(self.path / "wrong.js")[1])

    def test_the_tables_of_a_lesson(self):
        self.write({"formula": "zero", "sliders": ["ranks"], "over": "ranks"})
        tables = json.loads(program("lesson", "01_sliders", "--tables", folder=self.path))
        self.assertEqual([formula["formula"] for formula in tables["formulas"]], ["zero"])
        self.write("No sliders.")
        self.assertEqual(json.loads(program("lesson", "01_sliders", "--tables", folder=self.path))["formulas"], [])
        self.assertIn("choose one", program("lesson", "--tables", "--list", folder=self.path, status=2))

    def browse(self, play, *moves):
        """What the page shows at first and after each move: pairs of a slider's number and its new place."""
        return [{"labels": [label.text for label in shot.all("label")], "figures": [cell.text for cell in shot.all("td")],
                 "names": [cell.text for cell in shot.all("th")], "lines": [line.attributes["points"] for line in shot.all("polyline")],
                 "drawing": json.dumps([svg.node for svg in shot.all("svg")])}
                for shot in browse(NODE, self.page_of(play), *(("input", "input", number, to) for number, to in moves))]

    def test_sliders_change_figures_and_chart(self):
        first, later = self.browse({"formula": "pipeline", "sliders": ["ranks", "micro_batches"], "at": {"micro_batches": 16},
                                    "show": ["gpipe", "interleaved", "gpipe_held"], "over": "micro_batches"}, (1, 14))
        self.assertEqual(first["labels"], ["ranks p4", "micro-batches m16"])
        self.assertEqual(first["names"], ["bubble fraction, GPipe", "bubble fraction, interleaved", "micro-batches that rank 0 holds, GPipe"])
        self.assertEqual(first["figures"], ["15.79 %", "8.571 %", "16 micro-batches"])
        self.assertEqual(later["labels"], ["ranks p4", "micro-batches m15"])
        self.assertEqual(later["figures"], ["16.67 %", "does not take this shape", "15 micro-batches"])
        self.assertEqual(len(first["lines"]), 2)
        self.assertEqual(first["lines"], later["lines"])  # the slider moves along them
        self.assertNotEqual(first["drawing"], later["drawing"])
        self.assertEqual(first["lines"][1].count(" "), 63)  # the shapes that interleaved takes

    def test_units(self):
        (shown,) = self.browse({"formula": "all_reduce", "sliders": ["bytes", "gb_per_s"], "at": {"ranks": 2, "latency_us": 20}, "over": "bytes"})
        self.assertEqual(shown["labels"], ["buffer n1 MiB", "bandwidth 1/b50 GB/s"])
        self.assertEqual(shown["figures"][:1] + shown["figures"][4:], ["60.97 µs", "1.049 MB", "2 messages"])

    def test_every_formula_is_drawn(self):
        for formula in self.formulas:
            for over in formula["inputs"]:
                end = len(over["stops"]) - 1
                for seen in self.browse({"formula": formula["formula"], "sliders": [over["name"]], "over": over["name"]}, (0, 0), (0, end)):
                    self.assertEqual(len(seen["lines"]) >= 1, formula["picture"] == "chart")
                    self.assertNotIn("NaN", seen["drawing"] + "".join(seen["figures"]))
                    self.assertNotIn("Infinity", seen["drawing"] + "".join(seen["figures"]))

    RING = {"formula": "ring_attention", "sliders": ["step", "query"], "over": "step"}

    def rows(self, shot):
        """The filled rows of the ring's table: block, scores, exp(h - h'), h, s, O, l."""
        rows = [[cell.text for cell in row.all("td")] for row in shot.all("tr")[1:]]
        return [row for row in rows if row[0]]

    def number(self, value):
        return "–" if value is None else f"{value:z.3f}".rstrip("0").rstrip(".")

    def places(self, shot):
        return [block.attributes["style"] for block in shot.all(".block")]

    def test_the_ring_shows_the_values_of_the_formula(self):
        (formula,) = [one for one in self.formulas if one["formula"] == "ring_attention"]
        values = {(point["inputs"]["query"], point["inputs"]["step"]): list(point["outputs"].values()) for point in formula["points"]}
        self.assertEqual(len(values), 32)
        for query in range(8):
            shots = browse(NODE, self.page_of({**self.RING, "at": {"query": query}}), *(("input", "input", 0, step) for step in range(4)))[1:]
            for step, shot in enumerate(shots):
                wanted = []
                for k in range(step + 1):
                    block, first, second, *others = map(self.number, values[query, k])
                    wanted.append([block, f"{first}, {second}", *others])
                self.assertEqual(self.rows(shot), wanted)

    def test_blocks_travel_around_the_ring(self):
        shots = browse(NODE, self.page_of(self.RING), *(("input", "input", 0, step) for step in range(4)))[1:]
        corners = self.places(shots[0])
        self.assertEqual(len(set(corners)), 4)
        for step, shot in enumerate(shots):
            self.assertEqual(self.places(shot), [corners[(rank + step) % 4] for rank in range(4)])
            (home,) = [i for i, box in enumerate(shot.all(".rank")) if "asked" in box.attributes["class"]]
            self.assertEqual(self.rows(shot)[-1][0], str((home - step) % 4))  # the block that lies there

    def test_the_ring_plays_and_stops(self):
        page = self.page_of(self.RING)
        shots = browse(NODE, page, ("click", "button", 0, "play"), *[("tick",)] * 4, ("click", "button", 0, "play"), ("click", "button", 0, "stop"), ("tick",))
        self.assertEqual([len(self.rows(shot)) for shot in shots], [1, 2, 3, 4, 4, 4, 1, 1, 1])
        self.assertEqual([shot.timers for shot in shots], [0, 1, 1, 1, 0, 0, 1, 0, 0])
        self.assertEqual([shot.all("label")[0].text for shot in shots][:4], [f"step of the ring{step}" for step in range(4)])

    def test_the_page_loads_nothing(self):
        for asks in ("https:", "src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("):
            self.assertNotIn(asks, self.page)
        self.assertEqual(self.page.count("http:"), self.page.count('"http://www.w3.org/2000/svg"'))

    def test_what_it_refuses(self):
        good = {"formula": "zero", "sliders": ["ranks"], "over": "ranks"}
        for change, part in (({"formula": "magic"}, "there is no formula 'magic'"), ({"formula": 3}, "no 'formula'"),
                             ({"sliders": []}, "0 sliders"), ({"sliders": "ranks"}, "not a list of names"), ({"sliders": ["rank"]}, "has no 'rank'"),
                             ({"show": ["stage"]}, "has no 'stage'"), ({"over": "parameters"}, "names none of the sliders"),
                             ({"at": {"ranks": 3}}, "does not stop there"), ({"at": {"rank": 2}}, "has no 'rank'"), ({"at": {"ranks": "2"}}, "does not stop there"),
                             ({"colour": "red"}, "unknown field 'colour'")):
            with self.subTest(change):
                self.write({**good, **change})
                for word in ("--html", "--tables"):
                    self.assertIn(part, program("lesson", "01_sliders", word, folder=self.path, status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
