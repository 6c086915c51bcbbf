"""Plants faults in a small lesson: tests/lessons.py must report each with its file and line."""

import pathlib
import tempfile

from lessons import Lesson

NAME = "lessons/08_small/lesson.md"
GOOD = """# 08 A small lesson

## Card

| | |
|---|---|
| minutes | 30 |
| before | nothing |
| you will | see a bubble |

## Problem

```sh
./lockstep schedule naive -p 4 -m 8 --json naive.json || echo "status $?"
```

```output show="makespan "
makespan 96   bubble fraction 3/4 = 75.0 %   overhead 3 = 300.0 %
makespan   p m (tF + tB): 96; simulated 96
```

## Predict

- How long does the step take?
  <!-- predict {"name": "makespan", "unit": "units", "runs": ["few.json", "many.json"],
       "closed": "RUN/theory/quantity=makespan/expected", "measured": "RUN/makespan"} -->

## Run

```sh
./lockstep schedule 1f1b -p 4 -m 8 --no-chart --json few.json
./lockstep schedule 1f1b -p 4 -m 16 --no-chart --json many.json
```

```output show="simulated" varies="\\d+ units"
makespan   (m + p - 1)(tF + tB): 33; simulated 33
in_flight  min(p - rank, m): 4, 3, 2, 1; simulated 4, 3, 2, 1
makespan   (m + p - 1)(tF + tB): 57; simulated 57
in_flight  min(p - rank, m): 4, 3, 2, 1; simulated 4, 3, 2, 1
```

## Picture

```sh
./lockstep schedule --explorer schedules.html
```

```output
schedules.html: open it in a browser
```

## Explain

| symbol | means | here |
|---|---|---|
| p | ranks | <!--= few.json/config/ranks as int -->4<!--/--> |

The bubble is <!--= few.json/bubble/fraction * 100 as .1f -->27.3<!--/--> % of the step.

<!-- code tests/planted.cc twice -->
```cpp
int twice(int x) {
  return 2 * x;
}
```

<!-- code tests/planted.cc method -->
```cpp
void method(int a,
            int b) override {
  if (a) call(b);
}
```

<!-- code tests/planted.cc middle -->
```cpp
int middle = 0;
```

## Exercise

Change `-m`.

## Check

1. Does the bubble time of 1F1B grow with the number of micro-batches?
   - a. yes
   - b. no
   <!-- answer {"is": "b", "because": "it is (p - 1)(tF + tB).",
        "holds": "few.json/ranks/rank=0/idle == many.json/ranks/rank=0/idle"} -->
2. How many micro-batches does rank 0 hold?
   <!-- answer {"value": "few.json/ranks/rank=0/in_flight", "unit": "micro-batches"} -->
3. Is the idle fraction the same as the overhead?
   - a. yes
   - b. no
   <!-- answer {"is": "b", "because": "the overhead divides by useful time alone.",
        "holds": "few.json/bubble/fraction < few.json/bubble/overhead"} -->

## What if

<!-- play {"formula": "pipeline", "sliders": ["ranks", "micro_batches"], "at": {"ranks": 8},
     "show": ["gpipe", "overhead"], "over": "micro_batches"} -->

## Go further
"""
SOURCE = """int declared(int);

int twice(int x) {
  return 2 * x;
}

class Planted {
  void use() {
    if (method(1, 2)) {
      call();
    }
  }
  void method(int a,
              int b) override {
    if (a) call(b);
  }
};

void longer() {
  // lesson: middle
  int middle = 0;
  // lesson: end
}
"""

# (text, its replacement, the text on the line that the message names, part of the message)
PLANTED = [
    ("# 08 A", "# 09 A", "# 09 A", "the number of the folder 08_small"),
    ("## Picture", "## Pictures", "## Pictures", "expected the heading '## Picture'"),
    ("## Go further\n", "", "", "expected the heading '## Go further'"),
    ("## Go further\n", "## Go further\n\n## More\n", "## More", "one too many"),
    ("| minutes | 30 |\n", "", "", "no row 'minutes'"),
    ("schedule --explorer schedules.html", "schedule 1f1b --no-chart", "## Picture", "draws a plot"),
    ("| symbol |", "| letter |", "## Explain", "no table '| symbol |"),
    ("Change `-m`.", "Read [this](missing.md).", "# 08", "links to missing.md"),
    # A changed number, output, excerpt.
    (">27.3<", ">27.4<", "27.4", "-27.4\n    +27.3"),
    ("3/4 = 75.0 %", "3/4 = 75.1 %", "makespan 96   bubble", "differs from the run"),
    ("in_flight  min(p - rank, m): 4, 3, 2, 1; simulated 4, 3, 2, 1\nmakespan", "makespan", "(tF + tB): 33", "differs from the run"),
    ("return 2 * x", "return 3 * x", "int twice", "differs from the source"),
    # Commands that fail, or show nothing.
    ("schedule naive -p 4", "schedule naive -p 0", "makespan 96", "differs from the run"),
    ("schedule 1f1b -p 4 -m 16", "schedule 1f1b -p 4 -m", "```sh", "exit status 2"),
    ("## Picture\n", "## Picture\n\n```sh\n./lockstep doctor >doctor.txt\n```\n", "```sh", "without an ```output"),
    # Anchors and values that do not exist.
    ("planted.cc twice", "planted.cc thrice", "planted.cc thrice", "neither a function nor '// lesson: thrice'"),
    ("planted.cc twice", "planted.cc declared", "planted.cc declared", "neither a function"),
    ("planted.cc middle", "no_such.cc middle", "no_such.cc middle", "there is no such file"),
    ("few.json/config/ranks", "few.json/config/rank", "few.json/config/rank ", "no such value"),
    ("few.json/config/ranks", "none.json/config/ranks", "none.json", "no command of the lesson writes none.json"),
    ("few.json/config/ranks", "few.json/config", "few.json/config ", "not a number"),
    ("fraction * 100 as .1f", "fraction * 100 as int", "as int -->27.3", "not a whole number"),
    ("quantity=makespan/expected", "quantity=makespan2/expected", "predict", "no such value"),
    ('"measured": "RUN/makespan"', '"measured": "RUN/bubble/overhead"', "predict", "they must be equal"),
    # Questions.
    ('"is": "b", "because": "it', '"si": "b", "because": "it', '"si"', "unknown fields ['si']"),
    ('"is": "b", "because": "it', '"is": "e", "because": "it', '"is": "e"', "one answer of a, b, c and d"),
    ('"because": "it is (p - 1)', '"because": "it is 9 units, (p - 1)', "9 units", "is typed in the reason"),
    ('"is": "b", "because": "the', '"is" "b", "because": "the', '"is" "b"', "not what lessons/README.md describes"),
    # Sliders.
    ('"formula": "pipeline"', '"formula": "pipelines"', "play", "there is no formula 'pipelines'"),
    ('"formula": "pipeline", ', "", "play", "not what lessons/README.md describes"),
    ('"sliders": ["ranks"', '"sliders": ["rank"', "play", "has no ['rank']"),
    ('"sliders": ["ranks", "micro_batches"]', '"sliders": []', "play", "0 sliders"),
    ('"at": {"ranks": 8}', '"at": {"ranks": 0.5}', "play", "the slider does not stop there"),
    ('"at": {"ranks": 8}', '"from": {"ranks": 8}', "play", "unknown fields ['from']"),
    ('"show": ["gpipe"', '"show": ["bubble"', "play", "has no ['bubble']"),
    ('"over": "micro_batches"', '"over": "virtual_stages"', "play", "'over' names none of the sliders"),
    ('"formula": "pipeline"', '"formula" "pipeline"', "play", "not what lessons/README.md describes"),
    # Typed numbers next to a unit: the first three are wrong sentences of public lessons.
    ("Change `-m`.", "The stages stand idle for 18.75 % of the step.", "18.75", "'18.75 %' is typed"),
    ("Change `-m`.", "The states of this model take 84 GB.", "84 GB", "'84 GB' is typed"),
    ("Change `-m`.", "The bubble of DualPipeV is 1.2x as long.", "1.2x", "'1.2x' is typed"),
    ("Change `-m`.", "Each rank sends 3,337,216 bytes.", "3,337,216", "'3,337,216 bytes' is typed"),
    ("Change `-m`.", "It takes 14 rounds.", "14 rounds", "'14 rounds' is typed"),
    ("   - a. yes", "   - a. yes, by 3 us", "a. yes, by 3 us", "'3 us' is typed"),
    # Wrong facts that public lessons teach, as answers: the run refutes them.
    ("idle == many.json/ranks/rank=0/idle", "idle < many.json/ranks/rank=0/idle", "it is (p - 1)", "the run refutes"),
    ("fraction < few.json/bubble/overhead", "fraction == few.json/bubble/overhead", "the overhead divides", "the run refutes"),
    ("Change `-m`.", '<!-- puzzle {"name": "sand"} -->', "puzzle", "there is no puzzle 'sand'"),
    ("Change `-m`.", '<!-- scene {"kind": "passes", "of": "missing.json"} -->', "scene", "an animation of a kind among messages"),
    ("Change `-m`.", '<!-- scene {"kind": "film", "of": "few.json"} -->', "scene", "an animation of a kind among messages"),
    # No faults.
    ("Change `-m`.", '<!-- puzzle {"name": "sends"} --> <!-- scene {"kind": "passes", "of": "few.json"} -->', "", None),
    ("Change `-m`.", "Change `-m 16 rounds`, in 2026, with 16-bit numbers on 4 ranks of 2 nodes.", "", None),
    ('"\\d+ units"\nmakespan   (m + p - 1)(tF + tB): 33; simulated 33', '"\\d+"\nmakespan   (m + p - 1)(tF + tB): 7;  simulated 2', "", None),
]


def faults_in(text, program):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        path = root / NAME
        path.parent.mkdir(parents=True)
        (root / "tests").mkdir()
        (root / "tests/planted.cc").write_text(SOURCE)
        lesson = Lesson(root, path, text, program)
        return lesson.check(), lesson.renewed_text


def faults_of_the_checks(program):
    """What the checks of lessons do not find."""
    if (found := faults_in(GOOD, program)[0]):
        yield f"the good lesson has faults: {found}"
    for old, new, place, part in PLANTED:
        text = GOOD.replace(old, new, 1)
        found, renewed = faults_in(text, program)
        if text == GOOD or (part is None and found):
            yield f"{old!r} -> {new!r} should change the lesson without a fault: {found}"
        if part is None:
            continue
        with_part = [fault for fault in found if part in fault]
        lines = [int(fault.split(":")[1]) for fault in with_part]
        near = "".join("\n".join(text.splitlines()[line - 1:line + 1]) for line in lines)
        if not with_part or place not in near or not all(fault.startswith(f"{NAME}:") for fault in with_part):
            yield f"{old!r} -> {new!r} should give {part!r} near {place!r}, not {found}"
        if "differs from" in part and faults_in(renewed, program)[0]:
            yield f"{old!r} -> {new!r}: the renewed lesson still has faults"
