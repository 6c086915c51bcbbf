"""lockstep grade and lockstep lab: hostile submissions, equal grades, formats, exports and bad input.

python3 grade_test.py PROGRAM ROOT
"""

import concurrent.futures
import ctypes
import errno
import html.parser
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from grade_attacks import ATTACKS, CHECKS_DATA, GREEDY, LOUD, OUR_SOLUTIONS, RACING, READ, SOLUTION, WRONG_FOR_SEVEN, code
from processes import processes_in, still_left

PROGRAM, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FILE = "ring_reduce_scatter.cc"
SECRET = "the word is 7319"


class Page(html.parser.HTMLParser):
    """The tables of a page: for each its caption, and of each row the cells' texts and classes."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.tags, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.words = []
        if tag == "table":
            self.tables.append({"caption": "", "rows": []})
        elif tag == "tr":
            self.tables[-1]["rows"].append([])
        elif tag == "td":
            self.tables[-1]["rows"][-1].append(["", dict(attrs).get("class", "")])

    def handle_data(self, data):
        self.words.append(data)

    def handle_endtag(self, tag):
        if tag == "caption":
            self.tables[-1]["caption"] = "".join(self.words)
        elif tag == "td":
            self.tables[-1]["rows"][-1][-1][0] = "".join(self.words)


def refuse_calls(*numbers):
    """From now on these system calls fail in this process, as on a kernel that lacks them. Runs between fork and exec."""
    load, equal, answer, allow, no_such_call = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000 | errno.ENOSYS
    steps = [(load, 0, 0, 0)]
    for number in numbers:
        steps += [(equal, 0, 1, number), (answer, 0, 0, no_such_call)]
    steps.append((answer, 0, 0, allow))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None)
    filters = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filters, 0, 0):
        os._exit(99)


LANDLOCK, UNSHARE = (444, 445, 446), (272,)


class Grading(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name).resolve()
        # Open to everybody: only the confinement protects it.
        self.path.chmod(0o777)
        self.secret = self.path / "secret.txt"
        self.secret.write_text(SECRET)

    def submission(self, name, text):
        """A folder with this text as its code."""
        folder = self.path / name.replace(" ", "_")
        folder.mkdir()
        result = folder / "grade.json"
        result.touch()
        result.chmod(0o666)
        for word, path in (("RESULT", result), ("SECRET", self.secret), ("SOURCES", ROOT)):
            text = text.replace(word, str(path))
        (folder / FILE).write_bytes(text.encode(errors="surrogateescape"))
        return folder

    def run_program(self, *words, status=0, cwd=None, **options):
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=cwd or self.path, capture_output=True, text=True, timeout=120, **options)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def grade(self, folder, *words, status=1, secret=None):
        """Its JSON, and what the program says."""
        said = self.run_program("grade", 1, "--submission", folder, "--secret", secret or self.secret, "--json", folder / "grade.json", *words,
                                status=status, cwd=folder)
        grade = json.loads((folder / "grade.json").read_text())
        self.assertEqual((grade["schema"], grade["lab"], grade["points"]), ("lockstep.grade/1", 1, 100))
        self.assertEqual(grade["score"], sum(each["score"] for each in grade["obligations"]))
        return grade, said

    def attack(self, name, text):
        """The obligations by name, and the faults of the grading itself."""
        folder = self.submission(name, text)
        try:
            grade, said = self.grade(folder, "--html", "page.html", "--junit", "junit.xml", "--markdown", "grade.md")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return {}, [str(error)[:3000]]
        faults = []
        xml.etree.ElementTree.parse(folder / "junit.xml")
        written = "".join((folder / file).read_text() for file in ("grade.json", "page.html", "junit.xml", "grade.md"))
        if SECRET in said + written or SECRET.split(" ")[-1] in said + written:
            faults.append("the secret is in the output")
        if any(ord(c) < 32 and c != "\n" for c in said + written):
            faults.append("control characters are in the output")
        if left := still_left(lambda: processes_in(folder), 5):
            faults.append(f"processes are left: {left}")
        return {each["name"]: each for each in grade["obligations"]}, faults

    def attacks(self, codes):
        """Two at a time: name, expectation, and the results of attack()."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            # The slow ones first.
            names = sorted(codes, key=lambda name: "bomb" not in name)
            results = pool.map(lambda name: self.attack(name, codes[name][0]), names)
            return [(name, codes[name][1], *result) for name, result in zip(names, results)]

    def test_attacks_earn_nothing(self):
        # A quarter of them; all with `./lockstep test --campaign`.
        share = 1 if os.environ.get("LOCKSTEP_CAMPAIGN") == "whole" else 4
        for name, words, obligations, faults in self.attacks(dict(list(ATTACKS.items())[::share])):
            with self.subTest(name):
                self.assertEqual(faults, [])
                self.assertEqual({each["name"]: each["score"] for each in obligations.values() if each["score"] > 0}, {}, obligations)
                for obligation, word in zip(("values", "uneven", "memory"), words):
                    self.assertIn(word, obligations[obligation]["message"])
                self.assertEqual(self.secret.read_text(), SECRET)

    def test_our_own_solutions_are_out_of_reach(self):
        for lab, files in OUR_SOLUTIONS.items():
            folder = self.path / f"forwards {lab}"
            self.run_program("lab", "export", lab, folder, "--solution")
            for name, text in files.items():
                (folder / name).write_text(text)
            self.run_program("grade", lab, "--submission", folder, "--json", "grade.json", status=1)
            grade = json.loads((self.path / "grade.json").read_text())
            with self.subTest(lab=lab):
                self.assertNotIn("compiler_errors", grade)
                self.assertEqual(grade["score"], 0, grade)

    def test_other_kernels_and_users(self):
        """Without Landlock a small root protects files; without both the grader says so. An ordinary user has either."""
        folders = {name: self.submission(name, text) for name, text in (
            ("solution", code()), ("includes", ATTACKS["includes the secret"][0]), ("reads", code(READ % "SECRET")))}
        for path in (self.path, *self.path.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        users = [{}]
        if os.geteuid() == 0 and ROOT.is_relative_to("/tmp"):
            users.append({"user": 1000, "group": 1000, "extra_groups": []})
        for user in users:
            for refused, protects in (((), True), (LANDLOCK, True), (LANDLOCK + UNSHARE, False)):
                def grade(name, points):
                    self.run_program("grade", 1, "--submission", name, "--json", "grade.json", status=0 if points else 1,
                                     preexec_fn=lambda: refuse_calls(*refused), **user)
                    text = (self.path / "grade.json").read_text()
                    (self.path / "grade.json").unlink()
                    self.assertEqual(json.loads(text)["score"], points, text)
                    return text
                with self.subTest(user=user, refused=refused):
                    said = self.run_program("grade", 1, "--submission", folders["solution"], preexec_fn=lambda: refuse_calls(*refused), **user)
                    self.assertEqual("this kernel has no Landlock" in said, not protects, said)
                    self.assertIn("100 of 100", said)
                    for name in ("includes", "reads") if protects else ():
                        self.assertNotIn(SECRET.split(" ")[-1], grade(name, 0))

    def test_links_and_devices_are_not_read(self):
        real = self.submission("real", code(solution=SOLUTION))
        (self.path / "way").mkdir()
        (self.path / "way/lab").mkdir()
        (self.path / "way/lab" / FILE).symlink_to(self.secret)
        (self.path / "whole").symlink_to(real)
        (self.path / "passed").symlink_to(self.path)
        for name in ("dangling", "tty", "pipe", "huge", "socket"):
            (self.path / name).mkdir()
        (self.path / "dangling" / FILE).symlink_to("nowhere")
        (self.path / "tty" / FILE).symlink_to("/dev/tty")
        os.mkfifo(self.path / "pipe" / FILE)
        with open(self.path / "huge" / FILE, "wb") as file:
            file.truncate(1 << 40)
        with socket.socket(socket.AF_UNIX) as listening:
            os.chdir(self.path / "socket")
            listening.bind(FILE)
            for folder, words in (("way/lab", "is a link"), ("whole", "is a link"), ("whole/", "is a link"), ("whole/.", "is a link"),
                                  (self.path / "whole", "is a link"), ("passed/real", "is a link"), ("dangling", "is a link"), ("tty", "is a link"),
                                  ("pipe", "not a regular file"), ("huge", "more than 1048576 bytes"), ("socket", "not a regular file")):
                with self.subTest(folder=folder):
                    said = self.run_program("grade", 1, "--submission", folder, "--json", "grade.json", status=2)
                    self.assertIn(words, said)
                    grade = json.loads((self.path / "grade.json").read_text())
                    self.assertEqual((grade["score"], grade["points"]), (0, 100))
                    self.assertIn(words, grade["obligations"][0]["message"])
                    self.assertNotIn("7319", said + (self.path / "grade.json").read_text())
                    (self.path / "grade.json").unlink()
        (self.path / "form").mkdir()
        (self.path / "form/answers.txt").symlink_to(self.secret)
        self.assertIn("is a link", self.run_program("grade", 15, "--submission", "form", status=2))
        self.assertIn("is a link", self.run_program("lab", "apply", 1, "copy", "--submission", "whole", status=2))
        self.assertEqual(self.grade(real, status=0)[0]["score"], 100)

    def test_a_secret_where_others_can_read_it_is_refused(self):
        folder = self.submission("own secret", code(solution=SOLUTION))
        (folder / "secret.txt").write_text("x")
        for secret in (folder / "secret.txt", ROOT / "labs/exports.txt"):
            self.assertIn("keep the secret outside", self.run_program("grade", 1, "--submission", folder, "--secret", secret, status=2))

    def test_greed_costs_points(self):
        for name, fails, obligations, faults in self.attacks(GREEDY):
            with self.subTest(name):
                self.assertEqual(faults, [])
                self.assertEqual([each["name"] for each in obligations.values() if each["score"] == 0], list(fails))

    def test_equal_submissions_get_equal_grades(self):
        formats = ("json", "gradescope", "junit", "markdown", "html")
        folders = [self.submission(f"racing {i}", RACING) for i in range(6)]

        def outputs(folder):
            grade, said = self.grade(folder, *(word for name in formats for word in (f"--{name}", folder / f"grade.{name}")))
            return said, grade["score"], tuple((folder / f"grade.{name}").read_bytes() for name in formats)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(outputs, folders))
        self.assertEqual(len(set(results)), 1, sorted({said for said, *_ in results}))
        self.assertIn("rank 1 failed: this rank has had enough", results[0][0])

    def test_words_do_not_follow_from_chance(self):
        """A max over some ranks is never that over others, so what is said of a wrong message is always the same."""
        grade, _ = self.grade(self.submission("checks data", CHECKS_DATA))
        obligations = {each["name"]: each for each in grade["obligations"]}
        self.assertEqual(obligations["values"]["message"], "")
        # It has looked.
        self.assertIn("max", obligations["messages"]["message"])

    def test_formats(self):
        folder = self.submission("loud", LOUD)
        words = [word for name in ("gradescope", "classroom", "junit", "markdown", "html") for word in (f"--{name}", folder / name)]
        grade, said = self.grade(folder, *words, "--hints", 1)
        message = grade["obligations"][0]["message"]
        self.assertTrue(message.endswith('rank 0 failed: ?[2J?<script>&|" values 25 of 25 ok'), message)
        self.assertIn(message, said)
        self.assertEqual(grade["obligations"][0]["hints"][0][-1], "?")

        scope = json.loads((folder / "gradescope").read_text())
        self.assertEqual([test["name"] for test in scope["tests"]], [each["name"] for each in grade["obligations"]])
        self.assertEqual((scope["score"], sum(test["score"] for test in scope["tests"])), (grade["score"],) * 2)
        self.assertEqual(sum(test["max_score"] for test in scope["tests"]), 100)
        self.assertEqual([test["status"] == "passed" for test in scope["tests"]], [each["met"] for each in grade["obligations"]])
        self.assertIn(message, scope["tests"][0]["output"])

        room = json.loads((folder / "classroom").read_text())
        self.assertEqual((room["version"], room["status"], room["max_score"]), (1, "fail", 100))
        keys = {"name", "status", "score", "message", "test_code", "filename", "line_no", "duration"}
        for test, each in zip(room["tests"], grade["obligations"], strict=True):
            self.assertEqual(set(test), keys)
            self.assertEqual((test["name"], test["score"], test["status"]), (each["name"], each["score"], "pass" if each["met"] else "fail"))
        self.assertIn(message, room["tests"][0]["message"])

        suite = xml.etree.ElementTree.parse(folder / "junit").getroot()
        self.assertEqual((suite.tag, suite.get("tests"), len(suite)), ("testsuite", "7", 7))
        self.assertEqual(int(suite.get("failures")), len(suite.findall("testcase/failure")))
        self.assertIn(message, suite[0].find("failure").get("message"))

        rows = [line for line in (folder / "markdown").read_text().splitlines() if line.startswith("|")]
        self.assertEqual(len(rows), 2 + 7)
        self.assertIn('&lt;script&gt;&amp;\\|"', rows[2])

        page = Page((folder / "html").read_text())
        self.assertNotIn("script", page.tags)
        self.assertIn(message, page.tables[0]["rows"][1][2][0] + page.tables[0]["rows"][1][2][1] + (folder / "html").read_text().replace(
            "&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&"))
        traces = page.tables[1:]
        self.assertEqual([trace["caption"] for trace in traces], [f"rank {rank} sends" for rank in range(4)])
        for rank, trace in enumerate(traces):
            steps = trace["rows"][1:]
            self.assertEqual([row[2][0] for row in steps], [f"32 bytes to rank {(rank + 1) % 4}"] * 3)
            self.assertEqual([row[1][0] for row in steps], [f"32 bytes to rank {(rank + 3) % 4}"] * 3)
            self.assertEqual({row[column][1] for row in steps for column in (1, 2)}, {"differs"})

    def test_the_secret_chooses_the_hidden_cases(self):
        folder, scores = self.submission("seven", WRONG_FOR_SEVEN), set()
        for secret in range(10):
            self.secret.write_text(str(secret))
            result = self.run_graded(folder)
            self.assertEqual({each["name"] for each in result["obligations"] if not each["met"]} - {"hidden"}, set())
            scores.add(result["score"])
            if len(scores) == 2:
                break
        self.assertEqual(scores, {90, 100})

    def run_graded(self, folder):
        """The grade, whatever the status."""
        words = [PROGRAM, "grade", "1", "--submission", folder, "--secret", self.secret, "--json", folder / "grade.json"]
        done = subprocess.run(words, cwd=self.path, capture_output=True, text=True, timeout=60)
        grade = json.loads((folder / "grade.json").read_text())
        self.assertEqual(done.returncode, 0 if grade["score"] == 100 else 1, done.stdout + done.stderr)
        return grade

    def test_skeletons_and_solutions(self):
        said = self.run_program("lab", "export", 1, "solution", "--solution")
        self.assertIn("lockstep grade 1 --submission solution", said)
        grade, _ = self.grade(self.path / "solution", "--html", "page.html", status=0)
        self.assertEqual(grade["score"], 100)
        self.assertNotIn('"differs"', (self.path / "solution/page.html").read_text())
        (self.path / "empty").mkdir()
        self.run_program("lab", "export", 1, "empty")
        self.assertEqual(sorted(file.name for file in (self.path / "empty").iterdir()), [FILE, "task.md"])
        self.assertIn("Your code", (self.path / "empty" / FILE).read_text())
        self.assertEqual(self.grade(self.path / "empty")[0]["score"], 0)

    def test_exports_that_are_refused(self):
        (self.path / "full").mkdir()
        (self.path / "full/file").touch()
        for words, part in (((1, "full"), "full is not empty"), (("full",), "lab"), ((1, "full/file"), "full/file is not empty"),
                            ((1, "full/file/new"), "full/file/new"), ((99, "new"), "choose one of 1, 2, "), ((-1, "new"), "lab"), ((), "lockstep lab export 1"),
                            ((1,), "lockstep lab export 1"), ((1, "--course", "new"), "--course writes all labs"), (("--course", "full"), "full is not empty")):
            with self.subTest(words=words):
                self.assertIn(part, self.run_program("lab", "export", *words, status=2))
                self.assertEqual(os.listdir(self.path / "full"), ["file"])
                self.assertFalse((self.path / "new").exists())

    @unittest.skipUnless((ROOT / "labs/course").exists(), "there are no texts for a course")
    def test_course(self):
        labs = {file.parent.name: json.loads(file.read_text()) for file in ROOT.glob("labs/*/lab.json")}
        self.assertIn(f"{len(labs)} labs", self.run_program("lab", "export", "--course", "course"))
        readme, workflow = ((self.path / "course" / name).read_text() for name in ("README.md", ".github/workflows/grade.yml"))
        for name, lab in labs.items():
            files = sorted(file.name for file in (self.path / "course" / name).iterdir())
            self.assertEqual(files, sorted([file["name"] for file in lab["files"]] + ["task.md"] + ([lab["race"]["file"]] if "race" in lab else [])))
            self.assertIn(f"({name}/task.md)", readme)
            self.assertIn(f"grade {lab['number']} --submission {name}", workflow)
        for name in ("AI_POLICY.md", "TUTOR.md"):
            self.assertTrue((self.path / "course" / name).read_text())

    def test_a_folder_with_the_files_of_several_labs_is_the_largest_ones(self):
        self.run_program("lab", "export", 21, "engine", "--solution")
        said = self.run_program("schedule", "gpipe", "--ranks", 2, "--micro-batches", 2, status=2, env={**os.environ, "LOCKSTEP_LAB": "engine"})
        self.assertIn("LOCKSTEP_LAB=engine: this lab's code is no algorithm or schedule", said)

    def test_wrong_answers_of_a_form_are_run(self):
        self.run_program("lab", "export", 15, "form", "--solution")
        right = (self.path / "form/answers.txt").read_text()
        for name, old, new, part in (
                ("sequence parallel", "tp: partial", "tp: replicated", r"wpe.weight is not replicated along tp: run so, rank 0's gradient is off by 0\.\d+ times its norm"),
                ("tensor parallel", "tp: replicated", "tp: partial", r"off by 1\.000 times its norm"),
                ("tensor parallel", "tp: sharded", "tp: replicated", r"share of the gradient norm is 0\.\d+ times the right one"),
                ("tensor parallel", "tp: replicated", "tp: sharded", r"share of the gradient norm is 1\.414 times the right one"),
                ("pipeline", "pp: sharded", "pp: partial", r"no other stage has this parameter"),
                ("pipeline", "pp: partial", "yes", r"wte.weight has no answer")):
            with self.subTest(name=name, new=new):
                before, plan, rest = right.partition(f"plan {name}: ")
                (self.path / "form/answers.txt").write_text(before + plan + rest.replace(old, new, 1))
                self.run_program("grade", 15, "--submission", "form", "--json", "grade.json", status=1)
                wrong = [each for each in json.loads((self.path / "grade.json").read_text())["obligations"] if not each["met"]]
                self.assertEqual([each["name"] for each in wrong], [name])
                self.assertRegex(wrong[0]["message"], part)

    def test_causes_are_named(self):
        for lab, mutant, obligation, part in (
                (1, "ranks end with their neighbour's chunk", "order", r"step 0 sends chunk 0 of rank 0 to rank 1, where chunk 1 of rank 0 belongs; a known mistake gives exactly this: ranks end with their neighbour's chunk$"),
                (6, "1f1b: forgets that there may be few micro-batches", "few micro-batches", r"1f1b of 4 ranks and 1 micro-batch: rank \d: action \d is \dF1, but there is only"),
                (8, "the second product is not summed", "forward", r"this is rank 0's part alone, not the sum over the ranks"),
                (8, "every rank adds the bias and base before the sum", "biases", r"b2 and base were added 2 times"),
                (11, "the log-sum-exp stays", "two parts", r"this is part 0 alone"),
                (13, "the mean of gradients", "one step", r"gradients is wrong: it is divided by the 2 ranks: a mean, not the sum"),
                (13, "the norm of one rank's part alone", "clipping", r"squares is wrong: this is rank 0's part alone, not the sum")):
            with self.subTest(lab=lab, mutant=mutant):
                folder = self.path / f"{lab} {part[:9]}"
                self.run_program("lab", "export", lab, folder, "--solution")
                text = next(ROOT.glob(f"labs/{lab:02}_*/lab.json")).read_text()
                for old, new in next(each for each in json.loads(text)["mutants"] if each["name"] == mutant)["replacements"]:
                    file = next(file for file in folder.glob("*.cc") if old in file.read_text())
                    file.write_text(file.read_text().replace(old, new, 1))
                self.run_program("grade", lab, "--submission", folder, "--json", "grade.json", status=1)
                grade = json.loads((self.path / "grade.json").read_text())
                message = next(each["message"] for each in grade["obligations"] if each["name"] == obligation)
                self.assertRegex(message, part)
                self.assertNotRegex(json.dumps(grade), r"\b1 (ranks|micro-batches|messages|elements|bytes)\b")

    def test_each_cause_is_one_that_explains_everything(self):
        left = SOLUTION.replace("rank - 1 - step", "rank + 1 + step").replace("rank - 2 - step", "rank + 2 + step")
        left = left.replace("ring.right()", "RIGHT").replace("ring.left()", "ring.right()").replace("RIGHT", "ring.left()")
        copy = "const Memory kept = comm.scratch(data, data.count);"
        halved = SOLUTION.replace("op);", "op), comm.size() == 8 ? comm.reduce(data, data, op) : void();")
        for name, text, causes in (
                ("two mistakes", code(attack=copy, solution=left), {"order": "the ring turns to the left", "memory": "keeps a copy"}),
                # In the first case one step is missing, but not in others.
                ("mixed", code(solution=SOLUTION.replace("ring.size - 1", "ring.size - (ring.size == 2 ? 2 : 1)", 1)), {}),
                ("unknown", code(solution=halved), {})):
            with self.subTest(name):
                grade, _ = self.grade(self.submission(name, text))
                messages = {each["name"]: each["message"] for each in grade["obligations"] if not each["met"]}
                self.assertTrue(messages)
                self.assertEqual({of: message.split("a known mistake gives exactly this: ")[1] for of, message in messages.items()
                                  if "known mistake" in message}, causes, messages)

    def test_the_check_prints_which_mutant_loses_what(self):
        said = self.run_program("lab", "check", 15)
        self.assertIn(" 15  who_owes                 9 of 9 mutants, all as expected\n", said)
        self.assertIn("     1 tensor parallel, 2 sequence parallel, 3 pipeline, 4 sequence and data parallel\n", said)
        self.assertIn("     .  2= .  .  layer norms are replicated although the sequence is split\n", said)
        self.assertTrue(said.endswith("\n9 known mistakes named exactly; 2 right variants graded\n"), said)

    def test_hints(self):
        folder, hints = self.submission("no code", "?\n"), []
        for level in range(4):
            grade, said = self.grade(folder, "--hints", level)
            hints.append([each["hints"] for each in grade["obligations"]])
            self.assertEqual([len(each) for each in hints[-1]], [level] * 7)
            self.assertTrue(all(hint in said for each in hints[-1] for hint in each))
        for less, more in zip(hints, hints[1:]):
            self.assertEqual(less, [each[:-1] for each in more])
        self.assertEqual(len({hint for each in hints[3] for hint in each}), 21)

    def test_bad_input(self):
        for name in ("none", "folder", "pipe", "large", "good"):
            (self.path / name).mkdir()
        (self.path / "folder" / FILE).mkdir()
        os.mkfifo(self.path / "pipe" / FILE)
        (self.path / "large" / FILE).write_text(" " * ((1 << 20) + 1))
        (self.path / "good" / FILE).write_text("?\n")
        (self.path / "words.txt").write_text("x" * 5000)
        good = (1, "--submission", "good")
        for words, part in (((1, "--submission", "nowhere"), f"nowhere/{FILE}"), ((1, "--submission", "none"), f"none/{FILE}"),
                            ((1, "--submission", "folder"), f"folder/{FILE}"), ((1, "--submission", "pipe"), f"pipe/{FILE}"),
                            ((1, "--submission", "large"), f"large/{FILE}"), ((99, "--submission", "good"), "choose one of 1, 2, "),
                            ((1,), "--submission"), ((*good, "--hints", 4), "--hints"), ((*good, "--hints", -1), "--hints"),
                            ((*good, "--json", "no/grade.json"), "no/grade.json"), ((*good, "--html", "good"), "good"),
                            ((*good, "--json", f"good/{FILE}"), "also read"), ((*good, "--json", "x", "--junit", "x"), "another output"),
                            ((*good, "--secret", "none.txt"), "none.txt"), ((*good, "--secret", "words.txt"), "words.txt"),
                            (("surprise", "--submission", "good"), "surprise")):
            with self.subTest(words=words):
                self.assertIn(part, self.run_program("grade", *words, status=2))
        self.assertEqual((self.path / "good" / FILE).read_text(), "?\n")
        self.assertIn("choose one of 1, 2, ", self.run_program("lab", "check", 99, status=2))
        for words in (["lab", "export", 0, "folder"], ["lab", "check", -1], ["lab", "apply", 0, "folder", "--submission", "."],
                      ["grade", 0, "--submission", "."]):
            self.assertIn("choose one of 1, 2, ", self.run_program(*words, status=2))
        self.assertIn("use a number of at least 1", self.run_program("lab", "check", 1, "--share", 0, status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
