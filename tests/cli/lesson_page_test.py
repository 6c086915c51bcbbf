"""A lesson's page asks as a walk in the terminal does: what it shows before and after, what it locks, keeps and forgets.

python3 lesson_page_test.py PROGRAM SOURCE_FOLDER NODE
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE, NODE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3]
sys.path.insert(0, str(SOURCE / "tests"))
from lessons_faults import GOOD  # pylint: disable=wrong-import-position
from page_browser import browse  # pylint: disable=wrong-import-position

SECOND = '- How long with twice as many?\n  <!-- predict {"name": "many", "unit": "units", "runs": ["many.json"],\n' \
         '       "closed": "RUN/theory/quantity=makespan/expected", "measured": "RUN/makespan"} -->\n'
LESSON = GOOD.replace("\n## Run", f"{SECOND}\n## Run", 1)


def lock(number=0):
    return ("submit", "form", number)


def typed(value, number=0):
    return ("input", "input", number, value)


def click(words, number=0):
    return ("click", "button", number, words)


class LessonPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name)
        cls.page = cls.page_of(LESSON)

    @classmethod
    def page_of(cls, text, status=0):
        (cls.path / "08_small").mkdir(exist_ok=True)
        (cls.path / "08_small/lesson.md").write_text(text)
        done = subprocess.run([PROGRAM, "lesson", "08_small", "--html"], cwd=cls.path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return (cls.path / "out/lessons/08_small/lesson.html").read_text() if status == 0 else done.stderr

    def browse(self, *actions, **browser):
        return browse(NODE, self.page, *actions, **browser)

    def headings(self, shot):
        return [heading.text for heading in shot.all("h2")]

    def said(self, shot):
        return [p.text for p in shot.all("p") if p.attributes.get("role") == "status" and p.text]

    def test_nothing_is_given_away_before_the_predictions(self):
        first, after_one, after_two = self.browse(lock(), typed("40"), lock(), typed("57"), lock())[::2][:3]
        self.assertEqual(self.headings(first), ["Problem", "Predict"])
        self.assertEqual((len(first.all("form")), len(first.all("table"))), (2, 0))
        self.assertNotIn("33", first.text)
        self.assertEqual(self.headings(after_one), ["Problem", "Predict"])
        (last,) = self.browse(typed("40"), lock(), typed("57"), lock())[-1:]
        self.assertEqual(self.headings(last), [*self.headings(first), "Run", "Picture", "Explain", "Exercise", "Check", "What if", "Go further"])
        self.assertEqual(self.headings(after_two), self.headings(first))  # one of them is not locked

    def test_a_prediction_is_locked_and_then_compared(self):
        _, _, locked = self.browse(typed("40"), lock())
        self.assertEqual(self.said(locked), ["You predicted 40 units; it is locked. That is 1.21 times the closed form."])
        self.assertEqual(len(locked.all("form")), 1)  # nothing to change it with
        (fold,) = [fold for fold in locked.all("details") if "closed form" in fold.text]
        self.assertTrue(fold.is_open)
        self.assertEqual([cell.text for cell in fold.all("td")], ["few.json", "33", "33", "many.json", "57", "57"])
        self.assertEqual(locked.kept, {"makespan": "40"})
        for text, verdict in (("33", "Your prediction is right."), ("33.3", "Your prediction is right."), ("3.3e1", "Your prediction is right."),
                              ("1,033", "That is 31.3 times the closed form."), ("0", "That is 0 times the closed form.")):
            with self.subTest(text=text):
                self.assertIn(verdict, self.said(self.browse(typed(text), lock())[-1])[0])

    def test_what_is_no_number_is_asked_again(self):
        for text in ("", " ", "many", "-1", "40 units", "inf", "nan"):
            with self.subTest(text=text):
                refused, again = self.browse(typed(text), lock(), typed("40"), lock())[2::2]
                self.assertIn("write a number without its unit", self.said(refused)[0])
                self.assertEqual((len(refused.all("form")), refused.kept), (2, None))
                self.assertIn("You predicted 40 units", self.said(again)[0])

    def test_predictions_are_skipped(self):
        _, skipped = self.browse(click("skip"))
        self.assertIn("Skipped", self.said(skipped)[0])
        self.assertIn("few.json", skipped.text)
        self.assertNotIn("Run", self.headings(skipped))
        _, _, every = self.browse(click("skip"), click("skip all"))
        self.assertIn("Run", self.headings(every))
        self.assertNotIn("skip all", every.text)
        self.assertIsNone(every.kept)

    def test_what_is_locked_is_kept_until_it_is_forgotten(self):
        shot, forgotten = self.browse(click("forget what is locked on this page"), kept={"makespan": "40", "many": "57", "1": "z"})
        self.assertEqual(self.said(shot)[:2], ["You predicted 40 units; it is locked. That is 1.21 times the closed form.",
                                               "You predicted 57 units; it is locked. Your prediction is right."])
        self.assertIn("Run", self.headings(shot))
        self.assertEqual(len(shot.all("form")), 3)  # "z" is no choice
        self.assertEqual((forgotten.kept, forgotten.reloads, shot.reloads), ({}, 1, 0))
        for damaged in ("[]", 3, [1], {"makespan": 40}, {"makespan": "many"}):
            with self.subTest(damaged=damaged):
                self.assertEqual(len(self.browse(kept=damaged)[0].all("form")), 2)

    def test_a_browser_that_keeps_nothing_says_so(self):
        _, _, locked = self.browse(typed("40"), lock(), keeps=False)
        self.assertIn("This browser keeps no answers", self.said(locked)[0])
        self.assertNotIn("keeps no answers", self.said(self.browse(typed("40"), lock())[-1])[0])

    def test_questions_are_asked(self):
        opened = (click("skip all"),)
        choices = self.browse(*opened)[-1].all("form")[0].all("input")
        self.assertEqual([choice.attributes["value"] for choice in choices], ["a", "b"])
        wrong = self.browse(*opened, ("check", "input", 0), lock())[-1]
        self.assertEqual(self.said(wrong)[-1], "You answered a; it is locked. Wrong.")
        self.assertIn("b it is (p - 1)(tF + tB).", wrong.text)
        self.assertEqual(self.said(self.browse(*opened, ("check", "input", 1), lock())[-1])[-1], "You answered b; it is locked. Right.")
        self.assertIn("choose an answer", self.said(self.browse(*opened, lock())[-1])[-1])
        for value, verdict in (("4.03", "Right."), ("4.05", "Wrong.")):
            self.assertIn(f"You answered {value} micro-batches; it is locked. {verdict}", self.said(self.browse(*opened, typed(value, 2), lock(1))[-1]))
        self.assertNotIn("it is (p - 1)", self.browse(*opened)[-1].text)
        self.assertIn("b it is (p - 1)", self.browse(*opened, click("show the answer"))[-1].text)

    def test_microseconds_have_their_sign(self):
        page = self.page_of(GOOD.replace('"unit": "units"', '"unit": "us"'))
        self.assertEqual(browse(NODE, page)[0].all("label")[0].text, "your prediction (µs) ")

    def test_a_choice_that_is_not_there_is_refused(self):
        self.assertIn("question 1 has no choice 'b'", self.page_of(GOOD.replace("   - b. no\n", "", 1), status=2))

    def test_the_page_loads_nothing(self):
        for asks in ("https:", "src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("):
            self.assertNotIn(asks, re.sub(r'srcdoc="[^"]*"', "", self.page))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
