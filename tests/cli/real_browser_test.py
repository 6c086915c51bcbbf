"""The pages of lessons in a real browser: what fits on a phone and on a desk, what a keyboard can do, and that nothing is loaded.

python3 real_browser_test.py PROGRAM SOURCE_FOLDER CHROMIUM
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE, CHROMIUM = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
sys.path.insert(0, str(SOURCE / "tests"))
from lessons_faults import GOOD  # pylint: disable=wrong-import-position

LESSON = GOOD.replace("## Problem\n", '<!-- scene {"kind": "passes", "of": "few.json"} -->\n\n## Problem\n\nFour stages wait for each other.\n', 1).replace(
    "Change `-m`.", "Change `-m`.\n\n" + "\n".join(f'<!-- puzzle {{"name": "{name}"}} -->' for name in ("sends", "whose", "owes"))).replace(
    "## Exercise", "```sh\n./lockstep bench all_reduce --ranks 4 --clock unit --link ndr -b 1K -e 1K --algorithm ring --json ring.json\n"
    "./lockstep plan ddp --ranks 8 --global-batch 8\n```\n\n```output show=\" ring |^sent_bytes|^   *0 \"\n```\n\n## Exercise", 1)
SIZES = {"phone": (390, 844), "desk": (1280, 900)}
MOST_PAGE_BYTES = 1_500_000
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """A browser that is driven through a pipe."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # its helpers end later
        to_browser, self.pipe_out = os.pipe()
        self.pipe_in, from_browser = os.pipe()
        # The browser reads from 3 and writes to 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.read, self.events, self.session = 0, b"", [], None
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.pipe_out)
        os.close(self.pipe_in)
        self.profile.cleanup()

    def message(self):
        while b"\0" not in self.read:
            part = os.read(self.pipe_in, 1 << 16)
            assert part, "the browser has ended"
            self.read += part
        text, _, self.read = self.read.partition(b"\0")
        return json.loads(text)

    def ask(self, method, **fields):
        self.number += 1
        asked = {"id": self.number, "method": method, "params": fields, **({"sessionId": self.session} if self.session else {})}
        os.write(self.pipe_out, json.dumps(asked).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, path, size="desk", scheme="light"):
        width, height = SIZES[size]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == "phone")
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url="about:blank")
        self.events.clear()
        loader = self.ask("Page.navigate", url=path.as_uri())["loaderId"]
        # The blank page may tell of its end late, so this page's own is awaited.
        while not any(event["method"] == "Page.lifecycleEvent" and event["params"]["name"] == "load" and event["params"]["loaderId"] == loader for event in self.events):
            self.events.append(self.message())
        self.wait_for_layout()

    def wait_for_layout(self):
        frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
        self.ask("Runtime.evaluate", expression=frames, awaitPromise=True)

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key, text=""):
        code = {"windowsVirtualKeyCode": KEYS[key]} if key in KEYS else {}
        text = {"Enter": "\r", " ": " "}.get(key, text)
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code="Space" if key == " " else key, **code, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code="Space" if key == " " else key, **code)

    def type(self, text):
        for letter in text:
            self.press(letter, letter)

    def tab_to(self, selector, most=150):
        """Presses Tab until an element of this kind has the focus."""
        for _ in range(most):
            self.press("Tab")
            if self.value(f"document.activeElement.matches({json.dumps(selector)})"):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    def faults(self):
        """Errors of the console, and addresses that are neither the page nor in it."""
        errors = [event for event in self.events if event["method"] == "Runtime.exceptionThrown" or
                  event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error"]
        loaded = [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return errors + [url for url in loaded if not url.startswith(("file:", "data:", "about:"))]


class RealBrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name)
        for name, text in (("08_small", LESSON), ("09_next", GOOD.replace("08 A small", "09 The next").replace("nothing |", "[08](../08_small/lesson.md) |"))):
            (cls.path / name).mkdir()
            (cls.path / name / "lesson.md").write_text(text)
        done = subprocess.run([PROGRAM, "lesson", "08_small", "09_next", "--html"], cwd=cls.path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.site = cls.path / "out/lessons"
        cls.page = cls.site / "08_small/lesson.html"
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.open(self.page)
        self.browser.value("localStorage.clear()")

    def tearDown(self):
        self.assertEqual(self.browser.faults(), [])

    def said(self):
        return self.browser.value("[...document.querySelectorAll('[role=status]')].map((p) => p.textContent).filter(Boolean).join(' | ')")

    def test_every_page_fits(self):
        for page in (self.page, self.site / "09_next/lesson.html", self.site / "index.html"):
            self.assertLess(page.stat().st_size, MOST_PAGE_BYTES)
            for size in SIZES:
                for scheme in ("light", "dark"):
                    with self.subTest(page=page.parent.name, size=size, scheme=scheme):
                        self.browser.open(page, size, scheme)
                        self.assertEqual(self.browser.value("document.scrollingElement.scrollWidth - innerWidth") or 0, 0)
                        self.browser.value("for (const button of document.querySelectorAll('.gate button')) button.click()")
                        self.browser.value("for (const fold of document.querySelectorAll('details')) fold.open = true")
                        self.browser.wait_for_layout()
                        self.assertEqual(self.browser.value("document.scrollingElement.scrollWidth - innerWidth") or 0, 0)
                        # No table is cut.
                        self.assertEqual(self.browser.value("[...document.querySelectorAll('table')].filter((t) => t.scrollWidth > t.clientWidth + 1).length"), 0)
                        dark = self.browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 29)"
                        self.assertEqual(dark, scheme == "dark")
                        self.assertEqual(self.browser.faults(), [])

    def test_the_picture_and_the_question_are_on_the_first_screen(self):
        for size, (_, height) in SIZES.items():
            self.browser.open(self.page, size)
            for part in (".scene svg", ".hook", ".question"):
                self.assertLess(self.browser.value(f"document.querySelector('{part}').getBoundingClientRect().bottom"), height, f"{part} on a {size}")

    def test_narrow_tables_drop_columns_and_bring_them_back(self):
        heads = "[...document.querySelectorAll('.output th')].filter((th) => !th.hidden).map((th) => th.textContent)"
        self.browser.value("document.querySelector('.gate button').click()")
        self.browser.wait_for_layout()
        wide = self.browser.value(heads)
        self.browser.open(self.page, "phone")
        self.browser.value("document.querySelector('.gate button').click()")
        self.browser.wait_for_layout()
        narrow = self.browser.value(heads)
        self.assertLess(len(narrow), len(wide))
        for kept in ("size (B)", "algorithm", "quantity"):
            self.assertEqual(kept in narrow, kept in wide)
        self.browser.value("[...document.querySelectorAll('.output .more')].filter((b) => !b.hidden).forEach((b) => b.click())")
        self.assertGreaterEqual(len(self.browser.value(heads)), len(wide))

    def test_a_lesson_is_worked_through_with_the_keyboard(self):
        self.browser.tab_to(".scene input")
        before = self.browser.value("document.querySelector('.scene figcaption').textContent")
        for _ in range(40):
            self.browser.press("ArrowRight")
        self.assertNotEqual(self.browser.value("document.querySelector('.scene figcaption').textContent"), before)
        self.assertIn("The rest plays", self.browser.value("document.querySelector('.scene').textContent"))
        drawn = "document.querySelector('.scene input').max + ' ' + document.querySelectorAll('.scene .backward').length"
        self.assertEqual(self.browser.value(drawn), "90 0")  # not even the warm-up
        self.browser.tab_to(".ask input")
        self.browser.type("33")
        self.browser.press("Enter")
        self.assertIn("You predicted 33 units; it is locked. Your prediction is right.", self.said())
        self.assertFalse(self.browser.value("document.querySelector('#results').hidden"))
        self.assertNotIn("The rest plays", self.browser.value("document.querySelector('.scene').textContent"))
        self.assertRegex(self.browser.value(drawn), "^1000 [1-9]")
        self.browser.tab_to(".play input")
        figure = self.browser.value("document.querySelector('.play td').textContent")
        self.browser.press("ArrowRight")
        self.assertNotEqual(self.browser.value("document.querySelector('.play td').textContent"), figure)
        self.browser.open(self.page)  # what is locked stays
        self.assertIn("You predicted 33 units", self.said())

    def test_an_animation_plays(self):
        self.browser.value("document.querySelector('.gate button').click()")
        self.browser.value("document.querySelector('.scene input').value = 0; document.querySelector('.scene input').dispatchEvent(new Event('input'))")
        first = self.browser.value("document.querySelector('.scene figcaption').textContent")
        self.browser.tab_to(".scene button")
        self.browser.press("Enter")
        self.assertEqual(self.browser.value("document.querySelector('.scene button').textContent"), "stop")
        while self.browser.value("document.querySelector('.scene figcaption').textContent") == first:
            self.browser.wait_for_layout()
        self.browser.press("Enter")
        self.assertEqual(self.browser.value("document.querySelector('.scene button').textContent"), "play")

    def test_puzzles_are_solved_with_the_keyboard(self):
        self.browser.value("document.querySelector('.gate button').click()")
        self.browser.tab_to(".puzzle .switch")  # rank 0 of 2
        self.browser.tab_to(".puzzle button:not(.switch)")
        self.browser.press("Enter")
        self.assertIn("every rank receives first", self.said())
        self.browser.value("document.querySelector('.puzzle .switch').focus()")
        self.browser.press(" ")
        self.browser.tab_to(".puzzle button:not(.switch)")
        self.browser.press("Enter")
        self.assertIn("Right.", self.said())
        self.browser.open(self.page)
        self.assertIn("2 of 3: Each of 4 ranks", self.browser.value("document.querySelector('[data-puzzle=sends]').textContent"))

    def test_the_site_leads_from_lesson_to_lesson(self):
        self.assertEqual(self.browser.value("[...document.querySelectorAll('nav a')].map((a) => a.rel + a.getAttribute('href'))"),
                         ["../index.html", "next../09_next/lesson.html"] * 2)
        self.browser.value("localStorage.setItem(`lockstep: ${document.title}`, JSON.stringify({makespan: '33'}))")
        self.browser.open(self.site / "09_next/lesson.html")
        self.assertEqual(self.browser.value("document.querySelector('.card a').getAttribute('href')"), "../08_small/lesson.html")
        self.browser.open(self.site / "index.html")
        self.assertEqual(self.browser.value("[...document.querySelectorAll('li a')].map((a) => a.getAttribute('href'))"),
                         ["08_small/lesson.html", "09_next/lesson.html"])
        self.assertIn("1 of 4 questions locked", self.browser.value("document.querySelector('li').textContent"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
