"""The rules of a course, its autograder as Gradescope calls it, and submissions that resemble one another.

python3 course_test.py PROGRAM ROOT
"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

from grade_attacks import ATTACKS, code

PROGRAM, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FILE, FORM = "ring_reduce_scatter.cc", "answers.txt"
RULES = {"schema": "lockstep.course/1", "counts": "best", "late": {"percent_a_day": 10, "most_days": 2}, "labs": [{"lab": 15, "due": "2026-10-05T22:00:00Z"}]}


class Course(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name).resolve()

    def run_program(self, *words, status=0):
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def export(self, lab, folder, *words):
        self.run_program("lab", "export", lab, self.path / folder, *words)
        return self.path / folder

    # A form is graded without a compiler, so its classes are fast.
    def hand_in(self, student, time, wrong_plans):
        """The right answers, but for the first plans."""
        text = (self.path / "right" / FORM).read_text()
        for number in range(wrong_plans):
            before, plan, rest = text.partition(("plan tensor parallel: ", "plan sequence parallel: ")[number])
            text = before + plan + rest.replace("tp: sharded", "tp: replicated", 1)
        folder = self.path / "class" / student / "15" / time
        folder.mkdir(parents=True)
        (folder / FORM).write_text(text)

    def rows(self, rules, status=0):
        (self.path / "course.json").write_text(json.dumps(rules))
        said = self.run_program("grade", "--all", "class", "--csv", "book.csv", "--course", "course.json", status=status)
        with open(self.path / "book.csv", newline="", encoding="utf-8") as file:
            return {row["student"]: row for row in csv.DictReader(file)}, said

    def test_rules(self):
        self.export(15, "right", "--solution")
        self.hand_in("in time", "20261005T220000Z", 0)
        self.hand_in("a second late", "20261005T220001Z", 0)
        self.hand_in("a day late", "20261006T220000Z", 0)
        self.hand_in("two days late", "2026-10-06T22:00:01Z", 1)
        self.hand_in("too late", "20261007T220001Z", 0)
        # After the penalty the first is better: 75 points are more than 100 less 30 percent.
        self.hand_in("twice", "20261001T100000Z", 1)
        self.hand_in("twice", "20261007T210000Z", 0)
        self.hand_in("better late", "20261001T100000Z", 2)
        self.hand_in("better late", "20261006T100000Z", 0)
        (self.path / "class/absent").mkdir()
        best = {"in time": (100, 0, 100), "a second late": (90, 1, 100), "a day late": (90, 1, 100), "two days late": (60, 2, 75), "too late": (0, 3, 100),
                "twice": (80, 2, 100), "better late": (90, 1, 100), "absent": (0, 0, 0)}
        columns = ("points", "days_late", "before_penalty")
        rows, _ = self.rows(RULES)
        self.assertEqual({name: tuple(int(row[column]) for column in columns) for name, row in rows.items()}, best)
        self.assertEqual(list(rows["absent"])[-3:], ["handed_in", "days_late", "before_penalty"])
        self.assertEqual((rows["absent"]["status"], rows["absent"]["handed_in"], rows["twice"]["handed_in"]), ("missing", "", "20261007T210000Z"))
        page = (self.path / "book/index.html").read_text()
        self.assertIn('students/twice/15_who_owes/20261007T210000Z/grade.html">80</a><small class="status">2 days late, of 100</small>', page)

        rows, said = self.rows({**RULES, "late": {"percent_a_day": 15, "most_days": 2}})
        self.assertIn(" 0 graded, 9 kept", said)
        self.assertEqual([rows["twice"][column] for column in ("points", "handed_in")], ["75", "20261001T100000Z"])
        # 75 points less 30 percent lose 22.5, rounded down.
        self.assertEqual(rows["two days late"]["points"], "53")
        rows, _ = self.rows({**RULES, "counts": "last", "late": {"percent_a_day": 15, "most_days": 2}})
        self.assertEqual([rows["twice"][column] for column in ("points", "handed_in")], ["70", "20261007T210000Z"])
        rows, said = self.rows({**RULES, "labs": [{"lab": 1}, {"lab": 15}]})
        self.assertIn("lab 1, Ring reduce-scatter: nobody has handed it in\n", said)
        rows, _ = self.rows({**RULES, "labs": [{"lab": 15}]})
        self.assertEqual({name: row["points"] for name, row in rows.items() if row["days_late"] != "0"}, {})
        self.assertEqual(rows["too late"]["points"], "100")

    def test_what_has_no_time_is_refused(self):
        self.export(15, "right", "--solution")
        self.hand_in("ann", "20261001T100000Z", 0)
        self.hand_in("bob", "yesterday", 0)
        self.hand_in("cid", "20260230T100000Z", 0)
        self.hand_in("dan", "20261001T240000Z", 0)
        for folder in ("eve/15", "fay/1/20261001T100000Z"):
            (self.path / "class" / folder).mkdir(parents=True)
        (self.path / "class/eve/15" / FORM).write_text("?")
        (self.path / "class/gus").mkdir()
        (self.path / "class/gus/15").symlink_to("../ann/15")
        rows, said = self.rows(RULES, status=2)
        self.assertEqual([name for name, row in rows.items() if row["status"] != "missing"], ["ann"])
        for part in ("bob/15/yesterday is no time", "cid/15/20260230T100000Z is no time", "dan/15/20261001T240000Z is no time",
                     "eve/15 does not say when it was handed in", "fay/1 is a lab that the course does not have", "gus/15 is a link"):
            self.assertIn(part, said)

    def test_bad_rules_are_refused(self):
        self.export(15, "right", "--solution")
        self.hand_in("ann", "20261001T100000Z", 0)
        for change, part in (
                ({"schema": "lockstep.course/2"}, "its schema is not"), ({"counts": "first"}, '"counts" is neither'), ({"extra": 1}, "unknown key: extra"),
                ({"late": {}}, '"late" has no "percent_a_day"'), ({"late": {"percent_a_day": 101, "most_days": 2}}, "from 0 to 100"),
                ({"late": {"percent_a_day": 0.5, "most_days": 2}}, "from 0 to 100"), ({"labs": []}, '"labs" is not a list of labs'),
                ({"labs": [{"lab": 99}]}, "choose one of"), ({"labs": [{"lab": 15}, {"lab": 15}]}, "lab 15 is there twice"),
                ({"labs": [{"lab": 15, "due": "2026-10-05"}]}, "no time like"), ({"labs": [{"lab": 15, "due": "2026-10-05T22:00:00+02:00"}]}, "no time like")):
            with self.subTest(part=part, change=change):
                (self.path / "course.json").write_text(json.dumps({**RULES, **change}))
                self.assertIn(part, self.run_program("grade", "--all", "class", "--csv", "book.csv", "--course", "course.json", status=2))
        self.assertFalse((self.path / "book.csv").exists())

    def test_the_autograder(self):
        """As Gradescope lays it out, but for the build, which setup.sh makes: there the program is this one."""
        self.run_program("lab", "export", "--course", "course")
        self.assertEqual((self.path / "course/.gitignore").read_text(), "/autograder.zip\n")
        rules = json.loads((self.path / "course/course.json").read_text())
        self.assertEqual(len(rules["labs"]), len(list(ROOT.glob("labs/*/lab.json"))))
        root = self.path / "autograder"
        with zipfile.ZipFile(self.path / "course/autograder.zip") as archive:
            archive.extractall(root / "source")
            self.assertNotEqual(archive.getinfo("run_autograder").external_attr >> 16 & 0o100, 0)
        for name in ("setup.sh", "Dockerfile", "lockstep/CMakeLists.txt", "lockstep/labs/01_ring_reduce_scatter/lab.json"):
            self.assertTrue((root / "source" / name).is_file(), name)
        for name in ("lockstep/labs/hunts.json", "lockstep/labs/01_ring_reduce_scatter/instructor.md", "lockstep/build"):
            self.assertFalse((root / "source" / name).exists(), name)
        self.assertEqual(subprocess.run(["sh", "-n", root / "source/setup.sh"], check=False).returncode, 0)
        (root / "source/lockstep/lockstep").unlink()
        (root / "source/lockstep/lockstep").symlink_to(PROGRAM)
        (root / "run_autograder").write_bytes((root / "source/run_autograder").read_bytes())
        (root / "source/secret.txt").write_text("the word is 7319")
        solution = (self.export(1, "solution", "--solution") / FILE).read_text()
        seven = code("if (comm.size() == 7 && data.count != 3) return;")
        for name, text, title, points in (
                ("right", solution, "Lab 1: rings", 100), ("wrong for seven", seven, "lab 01", 90), ("attack", ATTACKS["exits"][0], "Lab 1", 0),
                ("nothing", None, "Lab 1", 0), ("a title without a number", solution, "Rings", None)):
            with self.subTest(name):
                result = self.autograde(root, text, title)
                if points is None:
                    self.assertIn("does not say which lab it is", result["output"])
                    self.assertEqual(result["score"], 0)
                    continue
                self.assertEqual(result["score"], points)
                self.assertEqual(sum(each["score"] for each in result["tests"]), points)
                self.assertEqual(sum(each["max_score"] for each in result["tests"]), 100)
                for each in result["tests"]:
                    self.assertEqual(set(each), {"name", "score", "max_score", "status", "output"})
                    self.assertIn(each["status"], ("passed", "failed"))

    def autograde(self, root, text, title):
        submission = root / "submission"
        submission.mkdir(exist_ok=True)
        (submission / FILE).unlink(missing_ok=True)
        if text is not None:
            (submission / FILE).write_text(text)
        (root / "results").mkdir(exist_ok=True)
        (root / "results/results.json").unlink(missing_ok=True)
        # Whose hidden cases have seven ranks: the gradebook's test finds the same of this name.
        users = [{"email": "bob", "id": 2, "name": "B"}, {"email": "ann", "id": 1, "name": "A"}]
        (root / "submission_metadata.json").write_text(json.dumps({"assignment": {"title": title}, "users": users}))
        done = subprocess.run([sys.executable, root / "run_autograder"], cwd="/", capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads((root / "results/results.json").read_text())

    def test_similar_submissions(self):
        skeleton, solution = ((self.export(1, name, *words) / FILE).read_text() for name, words in (("skeleton", ()), ("solution", ("--solution",))))
        body = solution.splitlines()
        renamed = solution.replace("leaving", "outgoing").replace("growing", "mine").replace("step", "round").replace("\n", "  // mine\n")
        other = code(solution="for (int i = 1; i < ring.size; ++i) {\n  comm.isend(data.part(i, 1), ring.right());\n"
                              "  while (data.count > 0 && i % 2 == 0) data = data.first(data.count - 1);\n}\n")
        for student, text in (("ann", other), ("bob", renamed), ("cid", skeleton), ("dan", other.replace("comm", "c").replace("int i", "long k"))):
            folder = self.path / "class" / student / "1"
            folder.mkdir(parents=True)
            (folder / FILE).write_text(text)
        (self.path / "class/eve/1").mkdir(parents=True)
        said = self.run_program("lab", "similar", "class", "--html", "similar.html")
        pairs = [line.split(":")[0].split("%")[1].strip() for line in said.splitlines() if "%" in line]
        self.assertEqual(set(pairs), {"our solution | bob/1", "ann/1 | dan/1"}, said)
        self.assertIn("eve", said)
        self.assertRegex(said, r"100%  our solution \| bob/1: ring_reduce_scatter.cc, \d+-\d+ \| \d+-\d+")
        page = (self.path / "similar.html").read_text()
        self.assertIn("const Slice outgoing = chunk[rank - 1 - round];", page)
        self.assertIn("comm.isend(data.part(i, 1), ring.right());", page)
        # What everybody has been given does not count.
        self.assertNotIn("#include", page)
        self.assertGreater(len(body), 5)
        self.assertIn("needs class", self.run_program("lab", "similar", status=2))
        self.assertIn("holds no submissions", self.run_program("lab", "similar", "skeleton", status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
