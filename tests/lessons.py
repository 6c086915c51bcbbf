"""Checks the lessons: their form, commands, outputs, numbers and excerpts of code; then that each check can fail.

python3 lessons.py PROGRAM [--write] FILE ...   checks these lessons; --write first renews all that is inserted
python3 lessons.py PROGRAM                      checks that planted faults are found

lessons/README.md describes the form. A lesson's `sh` blocks run in order in one empty folder. Nothing in a lesson that a run
or the sources can say is typed: a typed number next to a unit is a fault.
"""

import difflib
import functools
import json
import math
import operator
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import docs

HEADINGS = ["Card", "Problem", "Predict", "Run", "Picture", "Explain", "Exercise", "Check", "What if", "Go further"]
CARD = ["minutes", "before", "you will"]
WITH_COMMANDS = ["Problem", "Run", "Picture"]
FEWEST_QUESTIONS = 3
MOST_SECONDS = 240
MOST_SLIDERS = 4
ROUNDING = 1e-9  # of sums of times; counts are equal

TOKEN = re.compile(
    r"(?P<code>^<!-- code (?P<file>\S+) (?P<anchor>\S+) -->\n```\w*\n(?P<excerpt>.*?)^```$)"
    r"|(?P<run>^```sh\n(?P<commands>.*?)^```$(?:\n\n```output(?P<options>[^\n]*)\n(?P<output>.*?)^```$)?)"
    r"|(?P<fence>^```.*?^```$)"
    r"|(?P<value><!--= (?P<expression>[^>]+) as (?P<form>\S+) -->(?P<shown>[^<]*)<!--/-->)"
    r"|(?P<question><!-- (?P<kind>predict|answer|play|scene|puzzle) (?P<fields>\{.*?\}) -->)"
    r"|(?P<comment><!--.*?-->)", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r'(show|varies)="([^"]*)"')
# A number next to a unit; but a 16-bit number is the name of a type.
TYPED = re.compile(r"(?<![\w.])(?!\d+-bit\b)\d[\d,.]*[ -]?(?:(?:[KMGT]i?B|B|G?bit)(?:/s)?|bytes?|ns|us|µs|ms|s|(?:nano|micro|milli)?seconds?|minutes?|hours?|percent|times|x|messages?"
                   r"|rounds?|elements?|parameters?|tokens?|FLOPs?|units?)(?!\w)|(?<![\w.])\d[\d,.]* ?[%×]")
FIELDS = {"predict": {"name", "unit", "runs", "closed", "measured", "exact"}, "answer": {"is", "value", "unit", "because", "holds"},
          "play": {"formula", "sliders", "at", "show", "over"}, "scene": {"kind", "of", "call"}, "puzzle": {"name"}}
SCENES, PUZZLES = ("messages", "passes", "shards", "held"), ("sends", "whose", "owes")
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
RELATIONS = {"==": operator.eq, "<": operator.lt, ">": operator.gt, "~": lambda a, b: math.isclose(a, b, rel_tol=ROUNDING)}


class Fault(Exception):
    """Something of a lesson that is wrong."""


def is_value(found, wanted):
    return str(found) == wanted or (isinstance(found, (int, float)) and re.fullmatch(r"[\d.e+-]+", wanted) and found == float(wanted))


def value_at(folder, path):
    """The value in a result: run.json/theory/quantity=sent_bytes&rank=0/expected takes the first element with these fields."""
    name, *keys = path.split("/")
    try:
        found = json.loads((folder / name).read_text())
        for key in keys:
            if isinstance(found, list):
                wanted = [pair.split("=") for pair in key.split("&")]
                found = found[int(key)] if key.isdigit() else next(
                    item for item in found if all(is_value(item[field], value) for field, value in wanted))
            else:
                found = found[key]
    except FileNotFoundError:
        raise Fault(f"{path}: no command of the lesson writes {name}") from None
    except (KeyError, IndexError, ValueError, StopIteration, AttributeError, TypeError):
        raise Fault(f"{path}: there is no such value in {name}") from None
    if not isinstance(found, (int, float)):
        raise Fault(f"{path}: not a number")
    return found


def value_of(folder, expression):
    """Numbers and values of results with + - * / between them, from left to right."""
    words = re.split(r" ([-+*/]) ", expression)
    operands = [float(word) if re.fullmatch(r"[\d.e]+", word) else value_at(folder, word) for word in words[::2]]
    result = operands[0]
    for sign, operand in zip(words[1::2], operands[1:]):
        result = OPERATORS[sign](result, operand)
    return result


def holds(folder, claim):
    left, relation, right = re.split(r" (==|<|>|~) ", claim)
    return RELATIONS[relation](value_of(folder, left), value_of(folder, right))


def formatted(value, form):
    if form == "int":
        if value != round(value):
            raise Fault(f"{value} is not a whole number: use another format")
        return f"{round(value):,}"
    if not re.fullmatch(r"\.\df", form):
        raise Fault(f"unknown format {form!r}: use int or .2f")
    return f"{value:,{form}}"


def excerpt_of(root, file, anchor):
    """The lines between `// lesson: ANCHOR` and `// lesson: end`, or the function of that name."""
    if not (root / file).is_file():
        raise Fault(f"code {file}: there is no such file")
    text, name = (root / file).read_text(), re.escape(anchor)
    marked = re.search(rf"^ *// lesson: {name}\n(.*?)^ *// lesson: end$", text, re.MULTILINE | re.DOTALL)
    function = re.search(rf"^(?P<body>( *)(?!if|for|while|return)\w[^\n;]*\b{name}\([^;{{}}]*\{{\n.*?^\2\}}\n)", text, re.MULTILINE | re.DOTALL)
    if not marked and not function:
        raise Fault(f"code {file} {anchor}: neither a function nor '// lesson: {anchor}' has this name there")
    return textwrap.dedent(re.sub(r"^ *// lab: .*\n", "", (marked or function)[1], flags=re.MULTILINE))


@functools.cache
def formulas(program):
    """The formulas for sliders: by name their inputs with the stops of the slider, and their outputs."""
    tables = json.loads(subprocess.run([program, "lesson", "--tables"], capture_output=True, text=True, check=True).stdout)
    return {formula["formula"]: ({item["name"]: item["stops"] for item in formula["inputs"]}, {item["name"] for item in formula["outputs"]})
            for formula in tables["formulas"]}


def check_play(program, fields):
    if fields["formula"] not in (known := formulas(program)):
        raise Fault(f"there is no formula '{fields['formula']}' to play with; choose one of {', '.join(known)}")
    stops, outputs = known[fields["formula"]]
    if unknown := [name for name in [*fields["sliders"], *fields.get("at", {})] if name not in stops] + [
            name for name in fields.get("show", []) if name not in outputs]:
        raise Fault(f"the formula {fields['formula']} has no {unknown}")
    if not 1 <= len(fields["sliders"]) <= MOST_SLIDERS:
        raise Fault(f"{len(fields['sliders'])} sliders; use 1 to {MOST_SLIDERS}")
    if fields["over"] not in fields["sliders"]:
        raise Fault("'over' names none of the sliders")
    for name, value in fields.get("at", {}).items():
        if value not in stops[name]:
            raise Fault(f"{name} = {value}: the slider does not stop there")


def shown_part(options, output):
    shown = dict(OPTION.findall(options)).get("show")
    lines = [line.rstrip() + "\n" for line in output.splitlines()]
    return "".join(line for line in lines if not shown or re.search(shown, line))


def comparable(options, output):
    """What a comparison sees: numbers that vary, and the width of their columns, are left out."""
    varies = dict(OPTION.findall(options)).get("varies")
    return re.sub(r"[ -]+", " ", re.sub(varies, "#", output)) if varies else output


def difference(expected, real):
    lines = list(difflib.unified_diff(expected.splitlines(), real.splitlines(), "in the lesson", "of the run", lineterm="", n=0))
    return "\n    ".join(lines[:20])


class Lesson:
    """A lesson's text, what is wrong with it, and its text with all insertions renewed."""

    def __init__(self, root, path, text, program):
        self.root, self.path, self.text, self.program = root, path, text, program
        self.faults, self.pieces = [], []
        self.folder = None

    def fault(self, position, said):
        line = self.text.count("\n", 0, position) + 1
        self.faults.append((line, said))

    def headings(self):
        found = [(match.start(), match[1]) for match in re.finditer(r"^## (.*)$", self.prose(), re.MULTILINE)]
        for i, wanted in enumerate(HEADINGS):
            if i >= len(found) or found[i][1] != wanted:
                at = found[i][0] if i < len(found) else len(self.text)
                return self.fault(at, f"expected the heading '## {wanted}' here; the headings of a lesson are {', '.join(HEADINGS)}")
        for at, name in found[len(HEADINGS):]:
            self.fault(at, f"the heading '## {name}' is one too many")

    def prose(self):
        """The text without code, comments and inserted values; every character stands where it stood."""
        blank = lambda match: re.sub(r"[^\n]", " ", match[0])
        text = TOKEN.sub(blank, self.text)
        return re.sub(r"`[^`\n]*`", blank, text)

    def section(self, name):
        """(begin, end) of a section's text."""
        begin = re.search(rf"^## {name}$", self.text, re.MULTILINE)
        if not begin:
            return 0, 0
        end = re.compile(r"^## ", re.MULTILINE).search(self.text, begin.end())
        return begin.end(), end.start() if end else len(self.text)

    def check_form(self):
        self.headings()
        title = re.match(r"# (\d\d) \S", self.text)
        if not title or not self.path.parent.name.startswith(f"{title[1]}_"):
            self.fault(0, f"the title must begin with '# NN', the number of the folder {self.path.parent.name}")
        begin, end = self.section("Card")
        rows = re.findall(r"^\| ([^|]*?) \| [^|]*\S[^|]* \|$", self.text[begin:end], re.MULTILINE)
        for row in CARD:
            if row not in rows:
                self.fault(begin, f"the card has no row '{row}'")
        for name in WITH_COMMANDS:
            begin, end = self.section(name)
            if "```sh\n" not in self.text[begin:end]:
                self.fault(begin, f"the section {name} runs no command")
        begin, end = self.section("Picture")
        if not re.search(r"--plot \S|lockstep plot |--explorer ", self.text[begin:end]):
            self.fault(begin, "no command of the section Picture draws a plot")
        begin, end = self.section("Explain")
        if not re.search(r"^\| symbol \|", self.text[begin:end], re.MULTILINE):
            self.fault(begin, "the section Explain has no table '| symbol | ...' with the counter that measured each symbol")
        for name, kind, fewest in (("Predict", "predict", 1), ("Check", "answer", FEWEST_QUESTIONS)):
            begin, end = self.section(name)
            if self.text.count(f"<!-- {kind} ", begin, end) < fewest:
                self.fault(begin, f"the section {name} has fewer than {fewest} questions")
        for said in docs.faults_of_links(self.path, self.text):
            self.fault(0, said)
        for match in TYPED.finditer(self.prose()):
            self.fault(match.start(), f"'{match[0]}' is typed; insert it from a run: <!--= run.json/... as int -->")

    def renew(self):
        """Runs all commands, then renews everything that is inserted."""
        runs = {}
        for token in TOKEN.finditer(self.text):
            if token["run"]:
                runs[token.start()] = self.output_of(token)
        return TOKEN.sub(lambda token: self.renewed(token, runs), self.text)

    def output_of(self, token):
        if token["output"] is None:
            self.fault(token.start(), "a block of commands without an ```output block after it")
        try:
            status, output = docs.run_commands(self.folder, token["commands"], MOST_SECONDS)
        except docs.TimeoutExpired:
            self.fault(token.start(), f"not finished within {MOST_SECONDS} s:\n{token['commands']}")
            return None
        if status != 0:
            self.fault(token.start(), f"exit status {status}:\n{token['commands']}{output[-2000:]}")
            return None
        return output

    def renewed(self, token, runs):
        try:
            if token["code"]:
                return self.replaced(token, "excerpt", excerpt_of(self.root, token["file"], token["anchor"]))
            if token["value"]:
                return self.replaced(token, "shown", formatted(value_of(self.folder, token["expression"]), token["form"]))
            if token["run"] and token["output"] is not None and runs[token.start()] is not None:
                return self.replaced(token, "output", shown_part(token["options"], runs[token.start()]),
                                     lambda text: comparable(token["options"], text))
            if token["question"]:
                self.check_question(token["kind"], json.loads(token["fields"]))
        except Fault as fault:
            self.fault(token.start(), str(fault))
        except (ValueError, KeyError) as error:
            self.fault(token.start(), f"this comment is not what lessons/README.md describes: {error!r}")
        return token[0]

    def replaced(self, token, group, real, seen=lambda text: text):
        if seen(token[group]) == seen(real):
            return token[0]
        self.fault(token.start(group), f"differs from the {'source' if group == 'excerpt' else 'run'}:\n    {difference(token[group], real)}")
        begin, end = (place - token.start() for place in token.span(group))
        return token[0][:begin] + real + token[0][end:]

    def check_question(self, kind, fields):
        if unknown := fields.keys() - FIELDS[kind]:
            raise Fault(f"unknown fields {sorted(unknown)}")
        if typed := TYPED.search(fields.get("because", "")):
            raise Fault(f"'{typed[0]}' is typed in the reason; say it without the number")
        if kind == "play":
            check_play(self.program, fields)
        elif kind == "scene":
            if fields["kind"] not in SCENES or not (self.folder / fields["of"]).is_file():
                raise Fault(f"an animation of a kind among {', '.join(SCENES)} and of a file that a command writes")
        elif kind == "puzzle":
            if fields["name"] not in PUZZLES:
                raise Fault(f"there is no puzzle '{fields['name']}'; choose one of {', '.join(PUZZLES)}")
        elif kind == "predict":
            for run in fields["runs"]:
                closed, measured = (value_of(self.folder, fields[what].replace("RUN", run)) for what in ("closed", "measured"))
                if fields.get("exact", True) and not math.isclose(closed, measured, rel_tol=ROUNDING):
                    raise Fault(f"{run}: the closed form gives {closed}, the run {measured}; they must be equal")
        elif "value" in fields:
            value_of(self.folder, fields["value"])
        elif fields["is"] not in "abcd" or not fields["because"]:
            raise Fault("a question has one answer of a, b, c and d, and a reason")
        if "holds" in fields and not holds(self.folder, fields["holds"]):
            raise Fault(f"the run refutes the answer: {fields['holds']} does not hold")

    def check(self):
        """The faults as lines of text. Afterwards `renewed_text` is the lesson with its insertions renewed."""
        self.check_form()
        with tempfile.TemporaryDirectory() as folder:
            self.folder = pathlib.Path(folder)
            docs.make_launcher(self.folder, self.program)
            self.renewed_text = self.renew()
        name = self.path.relative_to(self.root)
        return [f"{name}:{line}: {said}" for line, said in sorted(self.faults)]


def main():
    root, program = pathlib.Path(__file__).resolve().parent.parent, pathlib.Path(sys.argv[1]).resolve()
    files = [pathlib.Path(name).resolve() for name in sys.argv[2:] if name != "--write"]
    faults = []
    for path in files:
        lesson = Lesson(root, path, path.read_text(), program)
        found = lesson.check()
        if "--write" in sys.argv and lesson.renewed_text != lesson.text:
            path.write_text(lesson.renewed_text)
            found = Lesson(root, path, lesson.renewed_text, program).check()
        faults += found
    if not files:
        import lessons_faults  # pylint: disable=import-outside-toplevel
        faults = list(lessons_faults.faults_of_the_checks(program))
    print("\n".join(faults) or "no faults found")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
