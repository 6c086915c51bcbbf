"""The explorer of schedules computes the same figures as the program, and loads nothing from elsewhere.

python3 explorer_test.py PROGRAM SOURCE_FOLDER
"""

import collections
import html.parser
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
PAGE = (SOURCE / "plots" / "explorer.html").read_text()
NODE = shutil.which("node") or shutil.which("nodejs")
NAMES = ["naive", "gpipe", "gpipe-lifo", "1f1b", "interleaved", "interleaved-rounds", "looped-bfs", "zb-h1", "zb-h2", "zb-v",
         "dualpipe-v"]
LOOPED = ("interleaved", "interleaved-rounds", "looped-bfs")  # any number of virtual stages
POINTS_PER_NAME = 24

# Reads points, writes the figures of each and the menu.
DRIVER = """
const {figuresOf, SCHEDULES} = require(process.argv[2]);
const points = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify({figures: points.map(figuresOf),
                                     menu: SCHEDULES.map(({name, summary}) => [name, summary])}));
"""

# One schedule, shape and times. Times stay decimal strings, so that both sides read the same digits.
Point = collections.namedtuple("Point", "name ranks micro_batches virtual_stages group forward input_gradient weight_gradient hop",
                               defaults=("1", "1", "1", "0"))


def for_page(point):
    return {"name": point.name, "ranks": point.ranks, "microBatches": point.micro_batches, "virtualStages": point.virtual_stages,
            "group": point.group, "forward": float(point.forward), "inputGradient": float(point.input_gradient),
            "weightGradient": float(point.weight_gradient), "hop": float(point.hop)}


def for_program(point):
    return ["schedule", point.name, "-p", str(point.ranks), "-m", str(point.micro_batches), "-v", str(point.virtual_stages),
            "--group-size", str(point.group), "--forward", point.forward, "--input-gradient", point.input_gradient,
            "--weight-gradient", point.weight_gradient, "--hop", point.hop, "--no-chart"]


def drawn_times(chance):
    """Random times on the sliders' steps; often equal ones without a hop, for which more closed forms hold."""
    forward, backward, weight = (str(chance.randint(1, 16) / 4) for _ in range(3))
    times = chance.choice([(forward,) * 3, (forward, forward, weight), (forward, backward, weight)])
    return *times, chance.choice(["0", "0", str(chance.randint(1, 40) * 5 / 100)])


def points():
    chance, result = random.Random(1), []
    for name in NAMES:
        for _ in range(POINTS_PER_NAME):
            ranks, micro_batches = chance.randint(1, 8), chance.randint(1, 24)
            virtual_stages = chance.randint(1, 4) if name in LOOPED else 0
            group = chance.choice([0, chance.randint(1, 24)]) if name == "interleaved" else 0
            result.append(Point(name, ranks, micro_batches, virtual_stages, group, *drawn_times(chance)))
        # Limits of rules and closed forms, maxima of the sliders, and refused shapes.
        result += [Point(name, 4, micro_batches, 0, 0) for micro_batches in (3, 4, 6, 7, 8)]
        result += [Point(name, 5, 10, 0, 0, "1", "1", "2"), Point(name, 16, 64, 4 if name in LOOPED else 0, 0),
                   Point(name, 0, 4, 0, 0), Point(name, 4, 0, 0, 0), Point(name, 4, 8, 3, 0), Point(name, 4, 8, 0, 4),
                   Point(name, 4, 8, -1, 0)]
    return result


class Explorer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if NODE is None:
            raise unittest.SkipTest("there is no node to run the page's model")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (model,) = re.findall(r'<script id="model">(.*?)</script>', PAGE, re.DOTALL)
        (cls.folder / "model.js").write_text(model)
        (cls.folder / "driver.js").write_text(DRIVER)
        cls.points = points()
        # In addition to the compared points: values that the page's controls cannot produce.
        beyond = [Point("1f1b", 4, 8, 0, 0, "0.33"), Point("magic", 4, 8, 0, 0)]
        done = subprocess.run([NODE, cls.folder / "driver.js", cls.folder / "model.js"], capture_output=True, text=True,
                              timeout=60, input=json.dumps([for_page(point) for point in cls.points + beyond]))
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        cls.figures, cls.beyond = answer["figures"][:len(cls.points)], answer["figures"][len(cls.points):]
        cls.menu = answer["menu"]

    def of_program(self, point):
        """The program's exit status, and the result it wrote or the rule it named."""
        path = self.folder / "schedule.json"
        done = subprocess.run([PROGRAM, *for_program(point), "--json", path], capture_output=True, text=True, timeout=60)
        if done.returncode == 2:
            return 2, {"error": done.stderr.strip().removeprefix("lockstep: ")}
        return done.returncode, json.loads(path.read_text())

    def test_every_figure_equals_the_programs(self):
        accepted = collections.Counter()
        for point, figures in zip(self.points, self.figures, strict=True):
            with self.subTest(point=point):
                status, program = self.of_program(point)
                self.assertEqual(figures.get("error"), program.get("error"))
                if status != 2:
                    accepted[point.name] += 1
                    self.same(figures, program)
                    # The program fails if a closed form does not agree.
                    self.assertEqual(status, 0 if all(form["agrees"] for form in figures["closedForms"]) else 1)
        self.assertGreaterEqual(len(self.points), 200)
        self.assertEqual(list(accepted), NAMES)
        self.assertGreaterEqual(min(accepted.values()), 10, accepted)

    def same(self, figures, program):
        """Without a tolerance: both count in whole ticks and divide once."""
        self.assertEqual(figures["makespan"], program["makespan"])
        self.assertEqual(figures["bubbleFraction"], program["bubble"]["fraction"])
        self.assertEqual(figures["bubbleOverhead"], program["bubble"]["overhead"])
        for rank, (mine, other) in enumerate(zip(figures["ranks"], program["ranks"], strict=True)):
            for key, other_key in (("busy",) * 2, ("idle",) * 2, ("innerIdle", "inner_idle"), ("inFlight", "in_flight"),
                                   ("unfinished",) * 2):
                self.assertEqual(mine[key], other[other_key], f"{key} of rank {rank}")
            self.assertEqual(
                [(a["stage"], a["pass"], a["microBatch"], a["begin"], a["end"], a["withNext"]) for a in mine["actions"]],
                [(a["stage"], a["pass"], a["micro_batch"], a["begin"], a["end"], a["with_next"]) for a in other["actions"]])
        keys = ("quantity", "formula", "expected", "measured")
        mine = [form for form in figures["closedForms"] if "bubble" not in form["quantity"]]
        self.assertEqual([(form.get("rank", 0), *(form[key] for key in keys)) for form in mine],
                         [(form["rank"], *(form[key] for key in keys)) for form in program["theory"]])

    def test_closed_forms_of_bubble_and_makespan_agree_together(self):
        seen = set()
        for point, figures in zip(self.points, self.figures, strict=True):
            agrees = {form["quantity"]: form["agrees"] for form in figures.get("closedForms", [])}
            if "makespan" in agrees:
                seen.add(point.name)
                self.assertEqual([agrees["bubble_fraction"], agrees["bubble_overhead"]], [agrees["makespan"]] * 2, point)
        self.assertEqual(seen, set(NAMES))

    def test_values_outside_of_the_controls_are_refused(self):
        self.assertEqual(self.beyond, [{"error": "a time of 0.33; use a multiple of 0.05"},
                                       {"error": f"unknown schedule 'magic'; choose one of {', '.join(NAMES)}"}])

    def test_the_menu_equals_the_programs(self):
        done = subprocess.run([PROGRAM, "schedule", "--help"], capture_output=True, text=True, timeout=60, check=True)
        positionals = done.stdout.split("Positionals:")[1].split("Options:")[0]
        lines = [line.strip() for line in positionals.splitlines() if line.strip()]
        lines = lines[lines.index("all") + 1:]
        # Descriptions begin in one column; a line without a name and a description there continues the one before it.
        column = re.match(r"\S+ +", lines[0]).end()
        menu = []
        for line in lines:
            entry = re.fullmatch(r"(\S+) +(.+)", line)
            if entry and entry.start(2) == column:
                menu.append(list(entry.groups()))
            else:
                menu[-1][1] += f" {line}"
        self.assertEqual(self.menu, menu)
        self.assertEqual([name for name, _ in menu], NAMES)


class Page(unittest.TestCase):
    def test_the_page_is_self_contained(self):
        requests = []

        class Reader(html.parser.HTMLParser):
            def handle_starttag(self, tag, attributes):
                requests.extend(name for name, _ in attributes if name in ("src", "srcset", "href", "data", "action", "poster"))

        Reader().feed(PAGE)
        self.assertEqual(requests, [])
        for asks in ("http:", "https:", "url(", "@import", "fetch(", "XMLHttpRequest", "import(", "import "):
            self.assertNotIn(asks, PAGE)

    def test_no_text_becomes_markup(self):
        for writes in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            self.assertNotIn(writes, PAGE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
