"""lockstep hunt: the copy, its one difference, and what is said of a place that a student has found.

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
