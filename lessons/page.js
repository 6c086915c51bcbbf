"use strict";
// What all scripts of a page share; and tables that are wider than the page: columns leave, from the one that matters least, and a
// button brings them back.

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#9b59b6", "#b8860b", "#6b7280"];
const REVEALED = [];  // calls to make with true or false, when the results are shown or hidden

function add(parent, tag, attributes = {}, text = "") {
  const isDrawing = parent.namespaceURI?.endsWith("svg") || tag === "svg";
  const child = isDrawing ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) child.setAttribute(name, value);
  if (text) child.textContent = text;
  parent.append(child);
  return child;
}

class FittingTable {
  constructor(table) {
    Object.assign(this, {table, isWhole: false});
    this.rows = [...table.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("th"), ...row.querySelectorAll("td")]);
    const heads = this.rows[0] ?? [];
    // Columns in the order in which they leave: without a rank of their own from the right, but never the first.
    this.leaving = heads.map((head, i) => [Number(head.dataset.keep ?? heads.length - i), i]).slice(1).sort(([a], [b]) => a - b).map(([, i]) => i);
    this.button = document.createElement("button");
    this.button.setAttribute("type", "button");
    this.button.setAttribute("class", "more");
    this.button.hidden = true;
    table.before(this.button);
    this.button.before(table);
    this.button.addEventListener("click", () => { this.isWhole = !this.isWhole; this.fit(); });
  }

  showColumn(number, isShown) {
    for (const cells of this.rows) if (cells[number]) cells[number].hidden = !isShown;
  }

  isTooWide() {
    return this.table.scrollWidth > this.table.clientWidth + 1;
  }

  fit() {
    this.leaving.forEach((column) => this.showColumn(column, true));
    const left = [];
    while (!this.isWhole && this.isTooWide() && left.length < this.leaving.length - 1) {
      left.push(this.leaving[left.length]);
      this.showColumn(left.at(-1), false);
    }
    // The last one to leave may have made room for one that matters less.
    const hidden = left.filter((_, i) => {
      const column = left[left.length - 1 - i];
      this.showColumn(column, true);
      if (this.isTooWide()) this.showColumn(column, false);
      return this.rows[0][column].hidden;
    }).length;
    this.button.hidden = hidden === 0 && !this.isWhole;
    this.button.textContent = this.isWhole ? "fewer columns" : `${hidden} more column${hidden === 1 ? "" : "s"}`;
  }
}

// Also when a fold or the results open, which gives the table its width.
if (typeof ResizeObserver === "function") {
  const tables = new Map([...document.querySelectorAll("table")].map((table) => [table.parentElement, new FittingTable(table)]));
  const observer = new ResizeObserver((changes) => changes.forEach(({target}) => tables.get(target)?.fit()));
  for (const parent of tables.keys()) observer.observe(parent);
}
