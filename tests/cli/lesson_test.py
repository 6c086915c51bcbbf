"""lockstep lesson: what it asks, locks, compares and remembers, and the input it refuses.

python3 lesson_test.py PROGRAM SOURCE_FOLDER
"""

import collections
import contextlib
import fcntl
import html
import html.parser
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
import urllib.parse

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "tests"))
from lessons_faults import GOOD  # pylint: disable=wrong-import-position

RIGHT = {"makespan": 40, "1": "b", "2": 4, "3": "b"}
# A time of 8 ranks on 2 cores, short and long, and a count that is wrong.
RESULT = {"context": {"num_cpus": 2, "caches": [{"size": 1000000}]},
          "benchmarks": [{"ranks": 8, "bytes": 64, "model_us": 10, "real_time": 20},
                         {"ranks": 2, "bytes": 1e7, "model_us": 10, "real_time": 20},
                         {"ranks": 2, "bytes": 1e7, "model_us": 10, "real_time": 5},
                         {"ranks": 2, "expected_fraction": 0.2, "simulated_fraction": 0.3, "model_us": 10, "real_time": 20},
                         {"ranks": 2, "bytes": 1e5, "model_us": 10, "real_time": 11}]}


def without_sliders(lesson):
    return re.sub(r"<!-- play .*? -->", "", lesson, flags=re.DOTALL)


class Page(html.parser.HTMLParser):
    """What a browser shows of a page, and tags that are not closed in their order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.headings, self.sources, self.addresses = [], [], [], [], []
        self.count, self.words = collections.Counter(), []
        self.feed(text)
        self.faults += self.open
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.count[tag] += 1
        self.sources += [value for name, value in attrs if name == "src"]
        self.addresses += [value for name, value in attrs if name == "href"]
        if tag == "li" and self.open[-1:] == ["li"]:  # HTML closes it
            self.open.pop()
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag in ("td", "li", "p", "pre", "table"):
            self.words.append(" ")

    def handle_endtag(self, tag):
        if tag == "ul" and self.open[-1:] == ["li"]:
            self.open.pop()
        if self.open[-1:] != [tag]:
            self.faults.append(f"</{tag}> after {self.open}")
        self.open = self.open[:-1]

    def handle_data(self, data):
        if self.open[-1:] in (["h1"], ["h2"]):
            self.headings.append(data)
        if self.open[-1:] not in (["style"], ["title"], ["script"]):
            self.words.append(data)


class Lessons(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name).resolve()
        self.lesson = self.path / "08_small"
        self.lesson.mkdir()
        self.write(GOOD)

    def write(self, text):
        (self.lesson / "lesson.md").write_text(text)

    def walk(self, answers=None, *words, status=0, typed="", lesson=None, environment=None):
        if answers is not None:
            (self.path / "answers.json").write_text(answers if isinstance(answers, str) else json.dumps(answers))
            words += ("--answers", "answers.json")
        if environment is None:
            words += ("--progress", "progress.json")
        done = subprocess.run([PROGRAM, "lesson", lesson or self.lesson.name, *words], cwd=self.path, capture_output=True, text=True,
                              input=typed, timeout=120, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def progress(self):
        return json.loads((self.path / "progress.json").read_text())["lessons"]["08_small"]

    def rows(self, said, name):
        return [line.split()[-4:] for line in said.splitlines() if line.startswith(f"{name} (") and ">" not in line]

    def test_a_walk_predicts_runs_and_compares(self):
        said = self.walk(RIGHT)
        self.assertLess(said.index("locked"), said.index("$ ./lockstep schedule 1f1b"))
        self.assertEqual([row[-3:] for row in self.rows(said, "makespan")], [["33", "33", "1.000"], ["57", "57", "1.000"]])
        self.assertEqual(self.rows(said, "makespan")[0][0], "40")
        self.assertIn("3 of 3 answers right", said)
        self.assertNotIn("<!--", said)
        self.assertNotIn("```", said)
        self.assertIn("The bubble is 27.3 % of the step.", said)
        self.assertIn("lockstep lesson 08_small --html", said)
        self.assertTrue((self.path / "out/lessons/08_small/few.json").exists())
        kept = self.progress()
        self.assertEqual(kept["predictions"]["makespan"]["value"], 40)
        self.assertEqual({name: (answer["value"], answer["right"]) for name, answer in kept["answers"].items()},
                         {"1": ("b", True), "2": ("4", True), "3": ("b", True)})

    def test_a_prediction_is_locked(self):
        self.walk(RIGHT)
        said = self.walk({**RIGHT, "makespan": 33})
        self.assertIn("you predicted 40 units; it is locked", said)
        self.assertEqual(self.rows(said, "makespan")[0][0], "40")
        self.assertEqual(self.progress()["predictions"]["makespan"]["value"], 40)
        self.assertEqual(self.rows(self.walk({**RIGHT, "makespan": "1,033"}, "--again"), "makespan")[0][0], "1033")

    def test_it_is_locked_before_the_run(self):
        self.write(GOOD.replace("1f1b -p 4 -m 16", "1f1b -p 4 -m 0"))
        self.assertIn("a command of the lesson ended with status 2", self.walk(RIGHT, status=1))
        self.assertEqual(self.progress()["predictions"]["makespan"]["value"], 40)
        self.assertNotIn("finished", self.progress())

    def test_answers_on_standard_input(self):
        said = self.walk(typed="40\n a\n4.03\nb\n")
        self.assertIn("wrong: it is b", said)
        self.assertIn("2 of 3 answers right", said)
        self.assertFalse(self.progress()["answers"]["1"]["right"])
        self.assertIn("wrong: it is 4", self.walk(typed="a\n4.05\nb\n"))

    def test_questions_are_skipped(self):
        said = self.walk(typed="s\nb\ns\nb\n")
        self.assertEqual(self.rows(said, "makespan")[0], ["skipped", "33", "33", "1.000"])
        self.assertNotIn("makespan: you predicted", said)
        self.assertIn("2 of 3 answers right, 1 skipped", said)
        self.assertNotIn("it is 4", said)
        self.assertEqual((set(self.progress()) - {"finished"}, set(self.progress()["answers"])), ({"answers"}, {"1", "3"}))
        self.assertEqual(self.rows(self.walk({**RIGHT, "1": "s"}), "makespan")[0][0], "40")
        self.assertIn("the answer to 'makespan' is ''", self.walk(None, "--again", typed="\n", status=2))

    def test_a_lesson_is_left_and_gone_on_with(self):
        said = self.walk(typed="40\nb\nq\n")
        self.assertIn("To go on: lockstep lesson 08_small\n", said)
        self.assertNotIn("skipped", said)
        self.assertNotIn("answers right", said)
        self.assertEqual((self.progress()["predictions"]["makespan"]["value"], set(self.progress()["answers"])), (40, {"1"}))
        self.assertNotIn("finished", self.progress())
        self.assertIn("3 of 3 answers right", self.walk(typed="b\n4\nb\n"))
        self.assertNotIn("$ ./lockstep", self.walk(None, "--again", typed="q\n").partition("makespan (")[2])

    def typed_at_a_terminal(self, keys):
        main, other = pty.openpty()
        with subprocess.Popen([PROGRAM, "lesson", self.lesson.name, "--progress", "progress.json", "--again"], cwd=self.path, stdin=other,
                              stdout=subprocess.PIPE, text=True) as process:
            os.close(other)
            os.write(main, keys)
            said = process.communicate(timeout=60)[0]
            os.close(main)
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("q leaves the lesson", said)
        return said

    def test_a_terminal_skips_and_leaves(self):
        self.assertIn("3 of 3 answers right", self.typed_at_a_terminal(b"\n\n\n\n\n\n\n\nb\n4\nb\n\n\n\n"))  # an empty line for the prediction
        self.assertNotIn("predictions", self.progress())
        for keys in (b"q\n", b"\n\n40\nq\n", b"\n\n\x04", b"\n\nmany\n\x04"):
            with self.subTest(keys=keys):
                said = self.typed_at_a_terminal(keys)
                self.assertIn("To go on: lockstep lesson 08_small\n", said)
                self.assertNotIn("$ ./lockstep schedule 1f1b", said)

    def test_a_terminal_is_asked_again(self):
        said = self.typed_at_a_terminal(b"\n\nmany\n40\n\n\n\n\n\nz\nb\n4\nb\n\n\n\n")
        self.assertIn("write a number", said)
        self.assertIn("write the letter", said)
        self.assertIn("3 of 3 answers right", said)

    def on_terminal(self, width, environment):
        """What a lesson shows on a terminal of that width."""
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        with subprocess.Popen([PROGRAM, "lesson", self.lesson.name, "--progress", "progress.json"], cwd=self.path, stdin=subprocess.DEVNULL,
                              stdout=other, env={**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, **environment}) as process:
            os.close(other)
            shown = b""
            with contextlib.suppress(OSError):
                while part := os.read(main, 10000):
                    shown += part
        os.close(main)
        self.assertEqual(process.returncode, 0, shown)
        return shown.decode().replace("\r\n", "\n")

    def test_a_terminal_shows_pictures_and_the_columns_for_which_it_has_room(self):
        bench = "./lockstep bench all_reduce --ranks 4 --clock unit --link ndr -b 1K -e 1K --algorithm ring"
        self.write(f"# 08 Words\n\n## Run\n\n```sh\n./lockstep schedule 1f1b -p 2 -m 2 --no-chart --plot picture.svg\n{bench}\n```\n\n"
                   "```output show=\" ring |picture\"\nold\n```\n")
        shown = self.on_terminal(80, {"NO_COLOR": "1"})
        picture, _, table = shown.partition(f"$ {bench}\n")
        self.assertRegex(picture, r"\n rank 0 \|\*+ +o+ +o+\n rank 1 \| +\*+o+\*+o+\n")
        self.assertIn("* forward   o backward\n", picture)
        head, row = table.splitlines()[:2]
        self.assertLessEqual(max(len(head), len(row)), 80)
        self.assertEqual(head.split("  ")[0], "size (B)")
        self.assertIn("time (us) out-of-place", head)
        self.assertNotIn("in-place", head.replace("out-of-place", ""))
        self.assertEqual(row.split()[:2], ["1024", "ring"])

    def test_text_fits_the_terminal(self):
        self.write("# 08 Words\n\n## Card\n\nA paragraph in two\nlines with `code of words` and **bold words** and a [link](../x.md), which is\n"
                   "[elsewhere](https://example.org) \u00b5s \u00b5s \u00b5s \u00b5s \u00b5s.\n\n1. The first item of a list is long enough to be wrapped.\n2. Short.\n\n"
                   "| name | what it means, in a cell that is too long for one line |\n|---|---|\n| p | ranks |\n\n```cpp\n  return 2 * x;  // code is never wrapped, however long\n```\n\n"
                   "## Run\n\n```sh\n./lockstep schedule 1f1b -p 2 -m 2\n./lockstep schedule gpipe -p 2 -m 2\n```\n\n```output show=\"^makespan \"\nold\n```\n")
        shown = self.on_terminal(40, {"NO_COLOR": "1"})
        self.assertNotIn("\033", shown)
        text, _, outputs = shown.partition("    return 2")
        self.assertLessEqual(max(len(line) for line in text.split("\n")[2:]), 40)
        self.assertIn("\nA paragraph in two lines with code of\nwords and bold words and a link, which\nis elsewhere (https://example.org) \u00b5s \u00b5s\n\u00b5s \u00b5s \u00b5s.\n", text)
        self.assertIn("\n1. The first item of a list is long\n   enough to be wrapped.\n2. Short.\n", text)
        self.assertIn("\nname  what it means, in a cell that is\n      too long for one line\np     ranks\n", text)
        self.assertIn("code is never wrapped, however long\n", outputs)
        self.assertIn("$ ./lockstep schedule 1f1b -p 2 -m 2\nmakespan ", outputs)
        self.assertIn(" more lines)\n\n$ ./lockstep schedule gpipe -p 2 -m 2\nmakespan ", outputs)
        self.assertNotIn("old", outputs)
        self.assertIn("\n\033[1mCard\033[0m\n", self.on_terminal(100, {}))

    def test_predictions_get_a_verdict(self):
        self.assertIn("makespan: you predicted 1.21 times the closed form", self.walk(RIGHT))
        self.assertIn("makespan: your prediction is right", self.walk({**RIGHT, "makespan": 33}, "--again"))

    def test_the_folder_of_the_progress(self):
        self.walk(RIGHT, environment={"XDG_STATE_HOME": str(self.path / "state")})
        self.assertTrue((self.path / "state/lockstep/lessons.json").exists())
        self.walk(RIGHT, environment={"XDG_STATE_HOME": "not/absolute", "HOME": str(self.path / "home")})
        self.assertTrue((self.path / "home/.local/state/lockstep/lessons.json").exists())
        self.assertIn("--progress", self.walk(RIGHT, environment={"XDG_STATE_HOME": "", "HOME": ""}, status=2))

    def test_residuals_are_explained(self):
        predictions = "".join(
            f'- {name}?\n  <!-- predict {{"name": "{name}", "unit": "us", "runs": ["r.json"], "exact": {str(exact).lower()},\n'
            f'  "closed": "RUN/benchmarks/{i}/model_us", "measured": "RUN/benchmarks/{i}/real_time"}} -->\n'
            for name, i, exact in (("short", 0, False), ("large", 1, False), ("fast", 2, False), ("uneven", 3, False), ("near", 4, False),
                                      ("count", 4, True)))
        predictions += ('- sum?\n  <!-- predict {"name": "sum", "unit": "us", "runs": ["r.json"],\n'
                        '  "closed": "RUN/benchmarks/ranks=2&bytes=1e5/model_us * 3 / 2 + 7 - 11", "measured": "RUN/benchmarks/4/real_time"} -->\n')
        self.write(f"# 08 Times\n\n## Predict\n\n{predictions}\n## Run\n\n```sh\necho '{json.dumps(RESULT)}' >r.json\n```\n\n## Picture\n")
        said = self.walk(typed="1\n2\n3\n4\n5\n6\n7\n").partition("prediction, and run")[2]
        reasons = {part.split(" ")[0]: part for part in said.split("\n") if " (us), " in part and ":" in part}
        self.assertEqual(list(reasons), ["short", "large", "fast", "uneven", "count"])
        self.assertEqual(self.rows(said, "sum"), [["7", "11", "11", "1.000"]])
        self.assertIn("8 ranks share 2 cores", said)
        self.assertIn("a chunk has 8 bytes", said)
        self.assertIn("inputs and outputs of all ranks take 40 MB, the last cache holds 1 MB", said)
        self.assertIn("data that fit the caches move faster", said)
        self.assertIn("the schedule gives 0.300", said)
        self.assertEqual([said.count(reason) for reason in ("too few cores", "latency:", "last cache", "move faster")], [1, 1, 1, 1])
        self.assertIn("these must be equal", reasons["count"])

    def test_the_page(self):
        self.write(without_sliders(GOOD).replace("--explorer schedules.html", "1f1b -p 4 -m 8 --no-chart --plot picture.svg").replace(
            "Change `-m`.", "Is 1 < 2 & `a<b`? [Here](../x.md), [there](https://example.org), **bold**."))
        said = self.walk(None, "--html", environment={"HOME": "/nowhere"})
        path = self.path / "out/lessons/08_small/lesson.html"
        self.assertIn(str(path), said)
        text = path.read_text()
        page = Page(text)
        self.assertEqual(page.faults, [])
        self.assertEqual(page.headings, ["08 A small lesson", "Problem", "Predict", "Run", "Picture", "Explain", "Exercise", "Check",
                                         "What if", "Go further"])
        self.assertEqual(page.count["img"], 1)
        self.assertIn("<svg", urllib.parse.unquote(page.sources[0]))
        self.assertEqual(page.addresses, ["https://example.org"])  # without a first paragraph there is no first screen
        self.assertIn('Is 1 < 2 & a<b? Here (x.md), there, bold.', page.text)
        for part in ("makespan   (m + p - 1)(tF + tB): 57; simulated 57", "return 2 * x;", "few.json 33 33", "many.json 57 57", "b it is (p - 1)",
                     "4 micro-batches", "The bubble is 27.3 % of the step.", "p ranks 4"):
            self.assertIn(" ".join(part.split()), page.text)
        for part in ("<!--", "```", "src=\"http"):
            self.assertNotIn(part, text)
        self.assertEqual(re.findall("<script[^>]*>", text), ['<script id="page">', '<script id="ask_page">'])
        self.assertFalse((self.path / "progress.json").exists())
        self.write(GOOD.replace("1f1b -p 4 -m 16", "1f1b -p 4 -m 0"))
        self.assertIn("ended with status 2", self.walk(None, "--html", status=1))
        self.assertIn("in the browser", self.walk(RIGHT, "--html", status=2))
        self.assertIn("choose one", self.walk(None, "--html", "--list", status=2))

    def test_the_page_shows_the_lines_of_the_terminal(self):
        said = self.walk(RIGHT)
        self.walk(None, "--html")
        text = (self.path / "out/lessons/08_small/lesson.html").read_text()
        shown = [html.unescape(part) for part in re.findall(r'<pre class="shown">(.*?)</pre>', text, re.DOTALL)]
        self.assertEqual(shown[1], "".join(line + "\n" for line in said.splitlines() if "simulated" in line and ";" in line and "96" not in line))
        self.assertEqual(shown[1].count("\n"), 4)
        whole = [html.unescape(part) for part in re.findall(r"<summary>the whole output, with \d+ more lines</summary><pre>(.*?)</pre>", text, re.DOTALL)]
        hidden = [int(number) for number in re.findall(r"the whole output, with (\d+) more lines", text)]
        self.assertEqual(hidden, [part.count("\n") - lines.count("\n") for part, lines in zip(whole, shown)])
        self.assertEqual(sum(hidden), sum(int(number) for number in re.findall(r"\((\d+) more lines?\)", said)))
        self.assertTrue(set(shown[1].splitlines()) < set(whole[1].splitlines()))
        self.assertEqual(shown[2:], ["schedules.html: open it in a browser\n"])  # no line is hidden

    def test_the_page_holds_sliders_and_the_explorer(self):
        self.walk(None, "--html")
        text = (self.path / "out/lessons/08_small/lesson.html").read_text()
        page = Page(text)
        self.assertEqual(page.faults, [])
        self.assertEqual([page.count[tag] for tag in ("iframe", "script")], [1, 5])
        (frame,) = re.findall(r'srcdoc="([^"]*)"', text)
        self.assertEqual(html.unescape(frame), (SOURCE / "plots/explorer.html").read_text())
        (play,) = re.findall(r'data-play="([^"]*)"', text)
        play = json.loads(html.unescape(play))
        self.assertEqual([(one["name"], one["at"], one["moves"]) for one in play["inputs"]],
                         [("ranks", 8, True), ("micro_batches", 8, True), ("virtual_stages", 2, False)])
        self.assertEqual([one["name"] for one in play["outputs"]], ["gpipe", "overhead"])

    def test_what_it_refuses(self):
        for answers, part in (({"1": "b"}, "no answer to 'makespan'"), ({**RIGHT, "makespan": "many"}, "write a number"),
                              ({**RIGHT, "makespan": -1}, "write a number"), ({**RIGHT, "1": "z"}, "write the letter"),
                              ({**RIGHT, "4": "a"}, "no question '4'"), ({**RIGHT, "1": ["b"]}, "neither a number nor a text"),
                              ("[1]", "not a JSON object"), ("{", "not a JSON object")):
            with self.subTest(answers):
                self.assertIn(part, self.walk(answers, "--again", status=2))
        self.assertIn("has no answer to '1'", self.walk(None, "--again", typed="40\n", status=2))
        self.assertIn("there is no lesson '99'", self.walk(RIGHT, lesson="99", status=2))
        self.assertIn("choose one", self.walk(None, "--list", status=2))
        self.assertIn("no answers.json", self.walk(None, "--answers", "no answers.json", status=2))
        self.write(GOOD.replace('"name": "makespan"', '"name" "makespan"'))
        self.assertIn("lesson.md:25: not JSON", self.walk(RIGHT, status=2))
        self.write(GOOD.replace("few.json/ranks/rank=0/in_flight", "few.json/ranks/rank=9/in_flight"))
        self.assertIn("few.json/ranks/rank=9/in_flight: there is no such value", self.walk(RIGHT, status=2))
        for damage in ("{", "[]", '{"schema": "lockstep.lessons/1", "lessons": {"08_small": {"predictions": {"makespan": {"value": "x"}}}}}'):
            (self.path / "progress.json").write_text(damage)
            self.assertIn("is not a file of lesson progress", self.walk(RIGHT, status=2))

    def test_the_list(self):
        folders = sorted(folder.parent for folder in SOURCE.glob("lessons/*/lesson.md"))
        said = subprocess.run([PROGRAM, "lesson", "--progress", "progress.json"], cwd=self.path, capture_output=True, text=True, check=True).stdout
        titles = [line.split("  ")[0] for line in said.splitlines() if line[:2].isdigit()]
        self.assertEqual(titles, [(folder / "lesson.md").read_text().split("\n")[0][2:] for folder in folders])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
