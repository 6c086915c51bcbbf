"""As much of a browser as the scripts of our pages use, in node: loads a page, and acts on it as a reader does.

What is hidden cannot be clicked. Timers run when a test says so.
"""

import html.parser
import json
import subprocess

VOID = ("meta", "img", "input", "br", "hr")

# Reads {page, scripts, title, actions, kept, keeps}. Writes what the page holds at first and after each action.
BROWSER = """
const {page, scripts, title, actions, kept, keeps} = JSON.parse(require("fs").readFileSync(0, "utf8"));
class Element {
  constructor(tag, space = "html") {
    Object.assign(this, {tag, namespaceURI: space, parent: null, children: [], attributes: {}, listeners: {}, dataset: {}, hidden: false, value: ""});
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "value") this.value = String(value);
    if (name.startsWith("data-")) this.dataset[name.slice(5)] = String(value);
  }
  append(...added) {
    for (const child of added) {
      if (child instanceof Element) { child.leave(); child.parent = this; }
      this.children.push(child);
    }
  }
  leave() {
    if (this.parent) this.parent.children.splice(this.parent.children.indexOf(this), 1);
    this.parent = null;
  }
  before(added) {
    added.leave();
    added.parent = this.parent;
    this.parent.children.splice(this.parent.children.indexOf(this), 0, added);
  }
  replaceChildren() { while (this.children.length > 0) { const child = this.children.pop(); if (child instanceof Element) child.parent = null; } }
  addEventListener(name, call) { this.listeners[name] = call; }
  set textContent(text) { this.replaceChildren(); if (text !== "") this.children.push(text); }
  get textContent() { return this.children.map((child) => child instanceof Element ? child.textContent : child).join(""); }
  within() { return this.children.flatMap((child) => child instanceof Element ? [child, ...child.within()] : []); }
  querySelectorAll(wanted) {
    const fits = {".": (e, name) => (e.attributes.class ?? "").split(" ").includes(name), "#": (e, name) => e.attributes.id === name}[wanted[0]];
    return this.within().filter((e) => fits ? fits(e, wanted.slice(1)) : e.tag === wanted);
  }
  querySelector(wanted) { return this.querySelectorAll(wanted)[0] ?? null; }
  isHidden() { return this.hidden || (this.parent?.isHidden() ?? false); }
}
function built({tag, attributes, children}) {
  const element = new Element(tag);
  for (const [name, value] of attributes) element.setAttribute(name, value ?? "");
  element.append(...children.map((child) => typeof child === "string" ? child : built(child)));
  return element;
}
const body = built(page), timers = new Map(), stored = new Map(kept === null ? [] : [[`lockstep: ${title}`, kept]]);
let reloads = 0;
const refuse = () => { throw new Error("the browser keeps nothing"); };
globalThis.document = {body, title, createElement: (tag) => new Element(tag), createElementNS: (space, tag) => new Element(tag, space),
                       querySelectorAll: (wanted) => body.querySelectorAll(wanted), querySelector: (wanted) => body.querySelector(wanted)};
globalThis.localStorage = keeps ? {getItem: (key) => stored.get(key) ?? null, setItem: (key, value) => stored.set(key, value)} : {getItem: refuse, setItem: refuse};
globalThis.location = {reload: () => { ++reloads; }};
globalThis.setInterval = (call) => { timers.set(timers.size + 1, call); return timers.size; };
globalThis.clearInterval = (timer) => timers.delete(timer);
(0, eval)(scripts.join(";"));

const seen = (e) => typeof e === "string" ? e : {tag: e.tag, attributes: {...e.attributes}, isHidden: e.hidden, isOpen: e.open === true, children: e.children.map(seen)};
const shot = () => ({body: seen(body), kept: stored.get(`lockstep: ${title}`) ?? null, reloads, timers: timers.size});
const shots = [shot()];
for (const [kind, tag, number, value] of actions) {
  if (kind === "tick") {
    for (const call of [...timers.values()]) call();
  } else {
    const words = kind === "click" ? value : "";
    const element = body.querySelectorAll(tag).filter((e) => !e.isHidden() && (words === "" || e.textContent === words))[number];
    if (element === undefined) throw new Error(`no ${tag} ${number} ${value}`);
    if (kind === "input") element.value = value;
    if (kind === "check") element.checked = true;
    element.listeners[kind]?.({preventDefault() {}});
  }
  shots.push(shot());
}
process.stdout.write(JSON.stringify(shots));
"""


class Reader(html.parser.HTMLParser):
    """A page as a tree, and its scripts."""

    def __init__(self, text):
        super().__init__()
        self.title, self.scripts, self.body = "", [], None
        self.open = [{"tag": "page", "attributes": [], "children": []}]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        node = {"tag": tag, "attributes": attrs, "children": []}
        self.open[-1]["children"].append(node)
        if tag == "body":
            self.body = node
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        if tag in [node["tag"] for node in self.open]:
            while self.open.pop()["tag"] != tag:
                pass

    def handle_data(self, data):
        tag = self.open[-1]["tag"]
        if tag == "script":
            self.scripts.append(data)
        elif tag == "title":
            self.title = data
        elif tag != "style":
            self.open[-1]["children"].append(data)


class Seen:
    """An element at one moment."""

    def __init__(self, node):
        self.node = node
        self.tag, self.attributes, self.is_hidden, self.is_open = node["tag"], node["attributes"], node["isHidden"], node["isOpen"]
        self.children = [child if isinstance(child, str) else Seen(child) for child in node["children"]]

    @property
    def text(self):
        """With what is hidden left out."""
        return "" if self.is_hidden else "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, wanted):
        """Elements of a tag, or of a .class, that are not hidden."""
        found = []
        for child in self.children:
            if not isinstance(child, str) and not child.is_hidden:
                fits = wanted[1:] in child.attributes.get("class", "").split() if wanted[0] == "." else child.tag == wanted
                found += [child] * fits + child.all(wanted)
        return found


class Shot(Seen):
    """A page at one moment, what its browser keeps of it, and whether it was reloaded."""

    def __init__(self, shot):
        super().__init__(shot["body"])
        self.kept = None if shot["kept"] is None else json.loads(shot["kept"])
        self.reloads, self.timers = shot["reloads"], shot["timers"]


def browse(node, page, *actions, kept=None, keeps=True):
    """The page at first and after each action: (kind, tag, number among those seen, value); a click names the button's words."""
    reader = Reader(page)
    asked = {"page": reader.body, "scripts": reader.scripts, "title": reader.title, "actions": [(*action, *[""] * (4 - len(action))) for action in actions],
             "kept": None if kept is None else json.dumps(kept), "keeps": keeps}
    done = subprocess.run([node, "-e", BROWSER], input=json.dumps(asked), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [Shot(shot) for shot in json.loads(done.stdout)]
