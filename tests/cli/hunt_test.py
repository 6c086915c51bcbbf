"""lockstep hunt and lockstep lab apply: the copy, its differences, and the answer to a place that a student has found.

python3 hunt_test.py PROGRAM ROOT
"""

import difflib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
HUNTS = json.loads((ROOT / "labs/hunts.json").read_text())


class Hunting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name).resolve()

    def hunt(self, *words, status=0):
        done = subprocess.run([PROGRAM, "hunt", *map(str, words)], cwd=self.path, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def test_copies_differ_in_one_place_which_is_found(self):
        self.assertGreaterEqual(len(HUNTS), 8)
        for hunt in HUNTS:
            with self.subTest(hunt["bug"]):
                number, file = hunt["number"], hunt["file"]
                copy = self.path / f"hunt_{number}"
                said = self.hunt(number)
                self.assertIn(hunt["title"], said)
                self.assertNotIn(file, said)
                for command in hunt["commands"]:
                    self.assertIn(f"\n  {command}\n", said)
                right, wrong = (ROOT / file).read_text().splitlines(), (copy / file).read_text().splitlines()
                changes = [change for change in difflib.SequenceMatcher(None, right, wrong, autojunk=False).get_opcodes() if change[0] != "equal"]
                self.assertEqual(len(changes), 1, changes)
                line = changes[0][3] + 1  # in the copy
                self.assertIn(f"as in {hunt['bug']}", self.hunt(number, "--found", f"{copy / file}:{line}"))
                self.assertIn(hunt["explanation"].split()[-1], self.hunt(number, "--found", f"{file}:{line + 2}"))
                self.assertIn("the right file, another line", self.hunt(number, "--found", f"{file}:{line + 40}", status=1))
                self.assertIn("another file", self.hunt(number, "--found", f"README.md:{line}", status=1))
                hints = self.hunt(number, "--found", "x.cc:1", "--hints", 3, status=1)
                self.assertEqual(hints.count("hint "), 3)
                self.assertIn(file, hints.replace("\n", " "))

    def test_the_trainings_run(self):
        (self.path / "lockstep").symlink_to(PROGRAM)
        for hunt in HUNTS:
            for command in hunt["commands"]:
                if "fuzz" not in command:  # a fuzzer without a bug takes all its plans
                    done = subprocess.run(["bash", "-c", command], cwd=self.path, capture_output=True, text=True, timeout=60)
                    self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")

    def test_commands_that_find_a_bug_end_as_stated_without_it(self):
        found_by = [hunt["found_by"] for hunt in HUNTS if "found_by" in hunt]
        self.assertGreaterEqual(len(found_by), 1)
        (self.path / "lockstep").symlink_to(PROGRAM)
        for each in found_by:
            done = subprocess.run(["bash", "-c", each["command"]], cwd=self.path, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, each["status"], f"{each}: {done.stdout}{done.stderr}")

    def test_the_copy_is_whole_and_does_not_tell(self):
        self.hunt(1, "--output", "copy")
        tracked = {file.relative_to(ROOT) for folder in ("collectives", "models", "parallel", "cli", "labs", "cmake")
                   for file in (ROOT / folder).rglob("*") if file.is_file() and "__pycache__" not in file.parts}
        here = {file.relative_to(self.path / "copy") for file in (self.path / "copy").rglob("*") if file.is_file()}
        self.assertEqual({file.name for file in tracked - here}, {"hunts.json", "lab.json", "instructor.md"})
        for hunt in HUNTS:
            name = hunt["bug"]
            self.assertEqual([str(file) for file in here if file.suffix in (".py", ".json", ".md") and name in (self.path / "copy" / file).read_text()], [])
        self.assertTrue((self.path / "copy/lockstep").stat().st_mode & 0o100)

    def lab(self, *words, status=0):
        done = subprocess.run([PROGRAM, "lab", *map(str, words)], cwd=self.path, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def test_a_submission_takes_the_place_of_our_code(self):
        for number, files in ((2, ["collectives/all_gather/ring.cc"]), (8, ["parallel/tensor/column_linear.cc", "parallel/tensor/row_linear.cc"])):
            with self.subTest(number=number):
                self.lab("export", number, f"lab_{number}", "--solution")
                for file in (self.path / f"lab_{number}").glob("*.cc"):
                    file.write_text(file.read_text().replace("namespace lockstep {\n", "#include <numbers>\nnamespace lockstep {\n// Mine.\n", 1))
                self.lab("apply", number, f"copy_{number}", "--submission", f"lab_{number}")
                for file in files:
                    with_marks, mine = (ROOT / file).read_text().splitlines(), (self.path / f"copy_{number}" / file).read_text().splitlines()
                    self.assertEqual((mine.count("// Mine."), mine.count("#include <numbers>")), (1, 1))
                    # Nothing of ours is lost or there twice.
                    code = lambda lines: sorted(line for line in lines if line and "#include" not in line and "// lab:" not in line and line != "// Mine.")
                    self.assertEqual(code(mine), code(with_marks))
        self.assertEqual(self.same_elsewhere("copy_2", ["collectives/all_gather/ring.cc"]), [])

    def same_elsewhere(self, copy, changed):
        """The sources of the copy that differ from ours, but for those."""
        return [str(file.relative_to(self.path / copy)) for folder in ("collectives", "parallel", "models") for file in (self.path / copy / folder).rglob("*.cc")
                if str(file.relative_to(self.path / copy)) not in changed and file.read_bytes() != (ROOT / file.relative_to(self.path / copy)).read_bytes()]

    def test_submissions_that_cannot_be_applied(self):
        (self.path / "none").mkdir()
        (self.path / "bare").mkdir()
        (self.path / "bare/ring_all_gather.cc").write_text("int x;\n")
        self.lab("export", 2, "full", "--solution")
        for words, part in (((2, "new", "--submission", "none"), "none/ring_all_gather.cc"), ((2, "new", "--submission", "bare"), "keep these lines of the skeleton"),
                            ((2, "full", "--submission", "full"), "full is not empty"), ((15, "new", "--submission", "none"), "lab 15 has no code"),
                            ((99, "new", "--submission", "none"), "choose one of"), ((2, "new"), "--submission")):
            with self.subTest(words=words):
                self.assertIn(part, self.lab("apply", *words, status=2))
                self.assertFalse((self.path / "new").exists())

    def test_bad_input(self):
        self.assertIn("sequence parallelism", self.hunt())
        (self.path / "full").mkdir()
        (self.path / "full/file").touch()
        for words, part in (((99,), "choose one of 1 to "), ((0,), "hunt"), (("x",), "hunt"), ((1, "--output", "full"), "full is not empty"),
                            ((1, "--output", "full/file/copy"), "full/file/copy"), (("--found", "x:1"), "without the number"), ((1, "--found", "x"), "not FILE:LINE"),
                            ((1, "--found", ":3"), "not FILE:LINE"), ((1, "--found", "x:0"), "'0' is no line"), ((1, "--found", "x:y"), "'y' is no line"),
                            ((1, "--hints", 4), "--hints")):
            with self.subTest(words=words):
                self.assertIn(part, self.hunt(*words, status=2))
        self.assertEqual([file.name for file in (self.path / "full").iterdir()], ["file"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
