"""The parts of a page: sections, pictures, tables; readable in light and dark and on a phone."""

from dataclasses import dataclass, field
from html import escape

from chart import as_page_element

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #5c6470; --grid: #dcdfe4; --paper: #ffffff; --panel: #f5f6f8;
  --link: #1f5fbf; --right: #00663f; --wrong: #b00020; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaee; --soft: #a3abb8; --grid: #383e49; --paper: #14171c;
  --panel: #1d2128; --link: #8ab8ff; --right: #5fd3a2; --wrong: #ff8a95; } }
* { box-sizing: border-box; }
body { font: 16px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem; margin: 0 auto;
  padding: 0 1rem 2rem; }
a { color: var(--link); } h1 { font-size: 1.6rem; margin: 1rem 0 .5rem; } h2 { font-size: 1.2rem; margin: 1.6rem 0 .2rem; }
h1, h2 { line-height: 1.25; } p { margin: .3rem 0; } nav { font-size: .95rem; } nav a { margin-right: .9rem; white-space: nowrap; }
.finding { font-weight: 700; } .right { color: var(--right); } .wrong { color: var(--wrong); }
.soft { color: var(--soft); font-size: .9rem; } code { font: .85em ui-monospace, monospace; overflow-wrap: anywhere; } code span { white-space: nowrap; }
figure { margin: .5rem 0; } .wide { overflow-x: auto; } .wide svg { display: block; max-width: 100%; min-width: 36rem; height: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem .15rem 0; border-bottom: 1px solid var(--grid); text-align: right; vertical-align: top; }
td { white-space: nowrap; } th:first-child, td:first-child, .word { text-align: left; } td.word { white-space: normal; }
td:first-child { white-space: nowrap; } th { vertical-align: bottom; }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--link); }
iframe { width: 100%; height: 48rem; border: 1px solid var(--grid); border-radius: 6px; }
"""


@dataclass(frozen=True)
class Section:
    title: str
    finding: str        # one or two sentences; every number in them is computed from the results
    reading: str = ""   # how to read the pictures
    charts: list = field(default_factory=list)
    command: str = ""   # that makes the results
    source: str = ""    # file of the repository that does it
    body: str = ""      # more of the page
    right: bool = True  # whether nothing is wrong

    @property
    def name(self):
        """Its address on the page."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


def joined(title, *sections):
    """One section of those that exist; a single one keeps its title."""
    found = [own for own in sections if own]
    if len(found) < 2:
        return next(iter(found), None)
    return Section(title, " ".join(own.finding for own in found), " ".join(own.reading for own in found),
                   [chart for own in found for chart in own.charts], "; ".join(own.command for own in found), found[0].source,
                   "\n".join(own.body for own in found if own.body), all(own.right for own in found))


def is_measure(cell):
    """Whether a cell is a number, perhaps with a unit, or says that there is none."""
    number = str(cell).split(" ")[0]
    try:
        float(number)
    except ValueError:
        return number in ("-", "")
    return True


def table(columns, rows):
    """Columns of measures stand to the right, with their heads."""
    starts = ["" if all(is_measure(row[i]) for row in rows) else ' class="word"' for i in range(len(columns))]
    head = "".join(f'<th scope="col"{start}>{escape(column)}</th>' for column, start in zip(columns, starts))
    cells = "\n".join("<tr>" + "".join(f"<td{start}>{escape(str(cell))}</td>" for cell, start in zip(row, starts)) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{cells}</tbody></table></div>'


def folded(summary, content):
    return f"<details><summary>{escape(summary)}</summary>\n{content}</details>"


def picture(chart):
    return (f'<figure><div class="wide">{as_page_element(chart.figure, chart.alt)}</div>\n<figcaption>'
            + folded(f"The numbers: {len(chart.rows)} rows", table(chart.columns, chart.rows)) + "</figcaption></figure>")


def unbroken(command):
    """A command whose lines do not end after a hyphen of a flag."""
    return " ".join(f"<span>{escape(word)}</span>" if word.startswith("-") else escape(word) for word in command.split(" "))


def section(own):
    origin = [f"<code>{unbroken(text)}</code>" for text in (own.command, own.source) if text]
    kind = "finding" if own.right else "finding wrong"
    return "\n".join(part for part in (
        f'<section id="{own.name}"><h2>{escape(own.title)}</h2>', f'<p class="{kind}">{escape(own.finding)}</p>',
        *map(picture, own.charts), own.body, f"<p>{escape(own.reading)}</p>" if own.reading else "",
        f'<p class="soft">{" &middot; ".join(origin)}</p>' if origin else "", "</section>") if part)


def page(title, sections, appendix):
    """`appendix`: HTML that the reader opens, or an empty text."""
    names = [(own.name, own.title) for own in sections] + ([("appendix", "Appendix")] if appendix else [])
    contents = "\n".join(f'<a href="#{name}">{escape(text)}</a>' for name, text in names)
    body = "\n".join(map(section, sections))
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
            f"<body><h1>{escape(title)}</h1>\n<nav>{contents}</nav>\n{body}\n"
            + ('<section id="appendix"><h2>Appendix</h2>\n' + folded("Every rank, every closed form, every environment", appendix) + "</section>\n"
               if appendix else "") + "</body></html>\n")
