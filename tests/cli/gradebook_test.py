"""lockstep grade --all: a class's gradebook equals its single grades, has the same bytes in every run, and continues after an end.

python3 gradebook_test.py PROGRAM ROOT [STUDENTS]

Of 8 students unless told otherwise; with 200, test_a_class says how long grading takes.
"""

import concurrent.futures
import csv
import html.parser
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import xml.etree.ElementTree

from grade_attacks import ATTACKS, code

PROGRAM, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
STUDENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 8
LAB = json.loads((ROOT / "labs/01_ring_reduce_scatter/lab.json").read_text())
FILE, FOLDER = LAB["files"][0]["name"], "01_ring_reduce_scatter"
# Names that a table, a page or a link could take for something of its own.
NAMES = ["O'Brien, Ann; =1+1", 'Bob "<b>" &amp; #1?%2e', "Zoë 学生"]
OUTPUTS = ["grade.html", "grade.json", "junit.xml", "results.json"]
STATUS = {"nothing": "unreadable", "link": "unreadable", "text": "does not compile", "missing": "missing"}


def wrong(solution, mutant):
    for old, new in mutant["replacements"]:
        solution = solution.replace(old, new, 1)
    return solution


def submissions(solution):
    """Endless: a name, and the text of the student's file. The first ones are of every kind; of the others most have code."""
    yield "right", solution
    yield "attack", ATTACKS["changes files"][0].replace("RESULT", "/nowhere")
    yield "nothing", None
    yield "text", "?\n"
    yield "link", None
    yield "missing", None
    mutants = [wrong(solution, mutant) for mutant in LAB["mutants"]]
    kinds = random.Random(5)
    for number in range(10**6):
        if number >= 8 and kinds.random() < 0.4:
            yield "right", solution + f"// {number}\n"
        elif number >= 8 and kinds.random() < 0.1:
            yield "attack", code("signal(SIGXCPU, SIG_IGN); for (volatile int i = 0;;) i = 1 - i;")
        else:
            yield LAB["mutants"][number % len(mutants)]["name"], mutants[number % len(mutants)] + f"// {number}\n"


class Page(html.parser.HTMLParser):
    """Links and tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.tags, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.text += data


class Gradebook(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name).resolve()
        self.run_program("lab", "export", 1, "solution", "--solution")
        self.solution = (self.path / "solution" / FILE).read_text()
        (self.path / "secret.txt").write_text("the word is 7319")

    def run_program(self, *words, status=0, **options):
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.path, capture_output=True, text=True, timeout=3600, **options)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def grade(self, book, *words, status=0):
        return self.run_program("grade", "--all", "class", "--csv", f"{book}.csv", "--secret", "secret.txt", *words, status=status)

    def rows(self, book):
        with open(self.path / f"{book}.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def submit(self, student, text, lab="1"):
        folder = self.path / "class" / student / lab
        folder.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (folder / FILE).write_text(text)
        return folder

    def make_class(self, students):
        """The kind of each student's submission."""
        kinds = {}
        for number, (kind, text) in zip(range(students), submissions(self.solution)):
            student = NAMES[number] if number < len(NAMES) else f"student {number:03}"
            folder = self.submit(student, text, FOLDER if number % 2 else "1")
            kinds[student] = kind
            if kind == "link":
                folder.rmdir()
                folder.symlink_to(self.path / "solution")
            elif kind == "missing":
                folder.rmdir()
        return kinds

    def bytes_of(self, book):
        """Of all files but the CSV by path."""
        return {path.relative_to(self.path / book).as_posix(): path.read_bytes() for path in sorted((self.path / book).rglob("*")) if path.is_file()}

    def test_a_class(self):
        kinds = self.make_class(STUDENTS)
        begin = time.monotonic()
        said = self.grade("one")
        minutes = (time.monotonic() - begin) / 60
        print(f"{STUDENTS} students in {minutes:.1f} minutes", file=sys.stderr)
        rows = self.rows("one")
        self.assertEqual([row["student"] for row in rows], sorted(kinds, key=str.encode))
        self.compare_with_single_grades(rows, kinds)
        self.read_page(rows)
        self.assertIn(f"{STUDENTS - 1} of {STUDENTS} students handed in", said)

        # Again elsewhere, on one core and interrupted twice: the same bytes, and nothing is graded twice.
        self.interrupt(signal.SIGINT, 130)
        self.interrupt(signal.SIGKILL, -signal.SIGKILL)
        kept = len(list((self.path / "two/records").rglob("*.txt")))
        self.assertTrue(0 < kept < STUDENTS - 1, kept)
        self.assertFalse((self.path / "two.csv").exists())
        said = self.grade("two")
        graded, before = (int(said.split(f" {word}")[0].split()[-1]) for word in ("graded, ", "kept; "))
        self.assertEqual(graded + before, STUDENTS - 1)
        self.assertGreaterEqual(before, kept)
        self.assertEqual(self.bytes_of("one"), self.bytes_of("two"))
        self.assertEqual((self.path / "one.csv").read_bytes(), (self.path / "two.csv").read_bytes())
        self.assertIn(f" 0 graded, {STUDENTS - 1} kept", self.grade("two"))

    def single_grade(self, student):
        """Its status and files; nothing if there is no submission."""
        folder = self.path / "single" / student
        folder.mkdir(parents=True)
        for lab in (self.path / "class" / student).iterdir():
            words = ["--submission", lab.relative_to(self.path / "class"), "--secret", self.path / "secret.txt", "--student", student]
            for option, name in (("--json", "grade.json"), ("--gradescope", "results.json"), ("--junit", "junit.xml"), ("--html", "grade.html")):
                words += [option, folder / name]
            done = subprocess.run([PROGRAM, "grade", "1", *words], cwd=self.path / "class", capture_output=True, text=True, timeout=120)
            return done.returncode, {name: (folder / name).read_bytes() for name in OUTPUTS}
        return None

    def compare_with_single_grades(self, rows, kinds):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            single = dict(zip(kinds, pool.map(self.single_grade, kinds)))
        for row in rows:
            student, kind = row["student"], kinds[row["student"]]
            self.assertEqual((row["lab"], row["out_of"], row["status"]), ("1", "100", STATUS.get(kind, "graded")), student)
            folder = self.path / "one/students" / student / FOLDER
            if kind == "missing":
                self.assertEqual(row["points"], "0")
                self.assertFalse(folder.exists())
                continue
            self.assertEqual(sorted(os.listdir(folder)), OUTPUTS)
            with self.subTest(student=student, kind=kind):
                status, files = single[student]
                self.assertEqual(status, 0 if kind == "right" else 2 if row["status"] == "unreadable" else 1)
                for name in OUTPUTS:
                    self.assertEqual((folder / name).read_bytes(), files[name], name)
                grade = json.loads((folder / "grade.json").read_text())
                self.assertEqual(int(row["points"]), grade["score"])
                for each in grade["obligations"]:
                    self.assertEqual(row[each["name"]], str(each["score"]))
                failed = next((mutant["fails"] for mutant in LAB["mutants"] if mutant["name"] == kind), [] if kind == "right" else None)
                if failed is not None:
                    self.assertEqual(sorted(name for name in (each["name"] for each in LAB["obligations"]) if row[name] == "0"), sorted(failed))
            xml.etree.ElementTree.parse(folder / "junit.xml")

    def read_page(self, rows):
        page = Page((self.path / "one/index.html").read_text())
        self.assertNotIn("b", page.tags)
        for row in rows:
            self.assertIn(row["student"], page.text)
        self.assertEqual(sorted(urllib.parse.unquote(link) for link in page.links),
                         sorted(f"students/{row['student']}/{FOLDER}/grade.html" for row in rows if row["status"] != "missing"))
        for link in page.links:
            self.assertTrue((self.path / "one" / urllib.parse.unquote(link)).is_file(), link)

    def interrupt(self, sent, status):
        """Grades until there is one more grade, then sends a signal."""
        before = len(list((self.path / "two/records").rglob("*.txt")))
        process = subprocess.Popen(["taskset", "-c", str(min(os.sched_getaffinity(0))), PROGRAM, "grade", "--all", "class", "--csv", "two.csv",
                                    "--secret", "secret.txt"], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while process.poll() is None and len(list((self.path / "two/records").rglob("*.txt"))) == before:
            time.sleep(0.02)
        process.send_signal(sent)
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, said)
        if sent == signal.SIGINT:
            self.assertIn("the same command grades the rest", said)

    def test_only_what_has_changed_is_graded_again(self):
        for student in ("ann", "bob"):
            self.submit(student, "?\n")
        self.assertIn(" 2 graded, 0 kept", self.grade("book"))
        changes = {
            "a submission": lambda: self.submit("ann", "!\n"),
            "a grade": lambda: (self.path / "book/students/bob" / FOLDER / "grade.json").write_text("{}"),
            "a lost page": (self.path / "book/students/bob" / FOLDER / "grade.html").unlink,
            "a lost record": (self.path / "book/records/ann" / f"{FOLDER}.txt").unlink,
            "a file that cannot be read": lambda: (self.path / "class/ann/1" / FILE).rename(self.path / "elsewhere"),
        }
        for name, change in changes.items():
            with self.subTest(name):
                change()
                self.assertIn(" 1 graded, 1 kept", self.grade("book"))
                self.assertIn(" 0 graded, 2 kept", self.grade("book"))
        self.assertEqual([row["status"] for row in self.rows("book")], ["unreadable", "does not compile"])
        self.assertIn(" 2 graded, 0 kept", self.grade("book", "--hints", 1))
        (self.path / "secret.txt").write_text("another word")
        self.assertIn(" 2 graded, 0 kept", self.grade("book", "--hints", 1))
        shutil.rmtree(self.path / "class/bob")
        self.assertIn(" 0 graded, 1 kept", self.grade("book", "--hints", 1))
        self.assertEqual([row["student"] for row in self.rows("book")], ["ann"])

    def test_each_student_has_hidden_cases_of_their_own(self):
        """Wrong for seven ranks only: it depends on the name whether a hidden case has seven."""
        text = code("if (comm.size() == 7 && data.count != 3) return;")
        for student in ("ann", "bob"):
            self.submit(student, text)
        self.grade("own")
        self.assertEqual([row["points"] for row in self.rows("own")], ["90", "100"])
        self.run_program("grade", "--all", "class", "--csv", "alike.csv")
        self.assertEqual(len({row["points"] for row in self.rows("alike")}), 1, "without a secret they are the same for everybody")

    def test_several_labs(self):
        self.submit("ann", self.solution)
        self.run_program("lab", "export", 15, "class/ann/15_who_owes", "--solution")
        self.run_program("lab", "export", 15, "class/bob/15")
        said = self.grade("book")
        self.assertIn("lab 1, Ring reduce-scatter: 1 of 2 students handed in, median 100, mean 100.0 of 100", said)
        self.assertIn("lab 15, Who owes a reduction?: 2 of 2 students handed in, median 50, mean 50.0 of 100", said)
        self.assertIn("  missed: tensor parallel by 1, sequence parallel by 1, pipeline by 1, sequence and data parallel by 1\n", said)
        rows = self.rows("book")
        self.assertEqual(list(rows[0])[:5], ["student", "lab", "points", "out_of", "status"])
        self.assertEqual(list(rows[0])[5:7] + list(rows[0])[-1:], ["values", "uneven", "sequence and data parallel"])
        self.assertEqual([(row["student"], row["lab"], row["points"], row["status"], row["values"], row["pipeline"]) for row in rows],
                         [("ann", "1", "100", "graded", "25", ""), ("ann", "15", "100", "graded", "", "25"),
                          ("bob", "1", "0", "missing", "0", ""), ("bob", "15", "0", "graded", "", "0")])

    def test_known_mistakes_of_a_class_are_counted(self):
        mutants = json.loads((ROOT / "labs/15_who_owes/lab.json").read_text())["mutants"][:2]
        for student, mutant in (("ann", mutants[0]), ("bob", mutants[1]), ("cyd", mutants[1])):
            self.run_program("lab", "export", 15, f"class/{student}/15", "--solution")
            answers = self.path / f"class/{student}/15/answers.txt"
            for old, new in mutant["replacements"]:
                answers.write_text(answers.read_text().replace(old, new, 1))
        said = self.grade("book")
        names = f"{mutants[1]['name']} by 2, {mutants[0]['name']} by 1"
        self.assertIn(f"  known mistakes: {names}\n", said)
        self.assertIn(f"Known mistakes: {names}.", Page((self.path / "book/index.html").read_text()).text)
        grade = json.loads((self.path / "book/students/bob/15_who_owes/grade.json").read_text())
        self.assertEqual({cause for each in grade["obligations"] for cause in each["causes"]}, {mutants[1]["name"]})

    def test_what_is_not_graded_is_named(self):
        self.submit("ann", "?\n")
        for folder in ("lab1", "01", "99", "ring_reduce_scatter", FOLDER):
            self.submit("ann", "?\n", folder)
        for student in ("=cmd('x')", "+1", "-1", "@x", "new\nline", "escape\x1b[2J"):
            self.submit(student, "?\n")
        os.mkdir(os.fsencode(self.path / "class") + b"/\xff")
        (self.path / "class/linked").symlink_to("ann")
        # These are in every course's repository.
        for name in ("lockstep", ".git"):
            (self.path / "class/ann" / name).mkdir()
        for name in ("class/notes.txt", "class/ann/README.md"):
            (self.path / name).touch()
        said = self.grade("book", status=2)
        for part in ("ann/lab1 is no lab: ", "ann/01 is no lab: ", "ann/99 is no lab: ", "ann/ring_reduce_scatter is no lab: ",
                     f"ann/1 is the same lab as ann/{FOLDER}", "=cmd('x') begins like a formula", "+1 begins like", "-1 begins like", "@x begins like",
                     r"new\x0aline has control characters", r"escape\x1b[2J has control", r"\xff has control characters", "linked is a link"):
            self.assertIn(part, said)
            self.assertIn(part, Page((self.path / "book/index.html").read_text()).text)
        self.assertEqual(said.count("lockstep: "), 13, said)
        self.assertEqual([(row["student"], row["status"]) for row in self.rows("book")], [("ann", "does not compile")])

    def test_bad_input(self):
        self.submit("ann", "?\n")
        (self.path / "empty").mkdir()
        (self.path / "full").mkdir()
        (self.path / "full/file").touch()
        everything = ("--all", "class", "--csv", "book.csv")
        for words, part in (
                ((1, *everything), "a lab with --all"), ((*everything, "--submission", "x"), "--submission with --all"),
                ((*everything, "--json", "x"), "--json with --all"), ((*everything, "--html", "x"), "--html with --all"),
                ((*everything, "--student", "x"), "--student with --all"), (("--all", "class"), "--all without --csv"),
                (("--all", "class", "--csv", "book"), "has no ending"), (("--all", "nowhere", "--csv", "book.csv"), "nowhere: No such file"),
                (("--all", "empty", "--csv", "book.csv"), "empty holds no submissions"),
                (("--all", "class", "--csv", "class/book.csv"), "lies in the class's folder"),
                ((*everything, "--output", "class/out"), "lies in the class's folder"), ((*everything, "--output", "."), "the class's folder lies in"),
                ((*everything, "--output", "full"), "full is not empty"), ((*everything, "--secret", f"class/ann/1/{FILE}"), "keep the secret outside"),
                ((1, "--submission", "class/ann/1", "--csv", "book.csv"), "without --all"), ((1, "--submission", "class/ann/1", "--output", "x"), "without --all"),
                ((1, "--submission", "class/ann/1", "--student", "ann"), "--student without --secret"), (("--submission", "class/ann/1"), "without a lab")):
            with self.subTest(words=words):
                self.assertIn(part, self.run_program("grade", *words, status=2))
        self.assertFalse((self.path / "book.csv").exists() or (self.path / "book").exists())
        self.assertEqual(os.listdir(self.path / "full"), ["file"])

    def test_a_race(self):
        lab = json.loads((ROOT / "labs/21_hybrid_engine/lab.json").read_text())
        race, options = lab["race"], lab["race"]["plan"]["options"]
        faster = {"tp": 4, "pp": 1, "micro_batches": 16}

        def hand_in(student, changes):
            plan = {**race["plan"], "options": {**options, **changes}}
            (self.path / "class" / student / "21/plan.json").write_text(json.dumps(plan))

        for student, changes in (("given", {}), ("faster", faster), ("cheating", {"model": "nano"})):
            self.run_program("lab", "export", 21, f"class/{student}/21", "--solution")
            hand_in(student, changes)
        said = self.grade("book")
        folders = {student: self.path / "book/students" / student / "21_hybrid_engine" for student in os.listdir(self.path / "class")}
        grades = {student: json.loads((folder / "grade.json").read_text()) for student, folder in folders.items()}
        self.assertEqual({grade["score"] for grade in grades.values()}, {100})
        self.assertIn("'model' is not free", grades["cheating"]["plan_refused"])
        entries = {student: json.loads((folder / "results.json").read_text()).get("leaderboard") for student, folder in folders.items()}
        self.assertIsNone(entries["cheating"])
        self.assertEqual(entries["faster"], [{"name": "ms per step", "value": grades["faster"]["step_seconds"] * 1e3, "order": "asc"}])
        # Fastest first, in what is printed and on the page.
        times = [f"{1e3 * grades[student]['step_seconds']:.3f}" for student in ("faster", "given")]
        self.assertEqual(times, sorted(times, key=float))
        ranking = [line.split() for line in said.splitlines() if "ms per step" in line]
        self.assertEqual([(row[0], row[-1]) for row in ranking], list(zip(times, ("faster", "given"))))
        text = Page((self.path / "book/index.html").read_text()).text
        self.assertLess(text.index(times[0]), text.index(times[1]))
        # The benchmark of such plans has the same time.
        self.run_program("bench", "3d", "--ranks", 16, "--model", options["model"], "--sequence-length", options["sequence_length"], "--dtype", options["dtype"],
                         "--global-batch", options["global_batch"], "--tp", 4, "--cp", 1, "--pp", 1, "--link", race["link"], "--tflops", race["flops_per_s"] / 1e12,
                         "--memory-bandwidth", race["memory_bytes_per_s"] / 1e9, "--json", "bench.json")
        (point,) = json.loads((self.path / "bench.json").read_text())["benchmarks"]
        self.assertEqual(point["step_seconds"], grades["faster"]["step_seconds"])
        # A changed plan is timed again.
        hand_in("cheating", {"tp": 1, "pp": 1, "micro_batches": 4})
        self.assertIn("1 graded, 2 kept", self.grade("book"))
        again = json.loads((folders["cheating"] / "grade.json").read_text())
        self.assertIn(f"{race['memory_limit']} fit", again["plan_refused"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
