"use strict";
// Fills each place for sliders on a lesson's page: sliders, figures, and a chart over one slider.

const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

function rounded(value) {
  return String(Number(value.toPrecision(4)));
}

// "3.3 MB", "12 µs", "27.27 %", "2,046 messages"
function textOf(value, unit) {
  if (value === null) return "does not take this shape";
  const isMeasure = ["s", "bytes", "bytes/s"].includes(unit);
  if (!isMeasure) return `${Number.isInteger(value) ? value.toLocaleString("en") : rounded(value)} ${unit}`.trim();
  const symbol = {s: "s", bytes: "B", "bytes/s": "B/s"}[unit];
  const [size, prefix] = PREFIXES.find(([size]) => value >= size * (1 - 1e-9)) ?? [1, ""];
  return `${rounded(value / size)} ${prefix}${symbol}`;
}

// Of a slider: buffers as powers of two, the rest as decimals.
function stopText(value, {unit, scale}) {
  if (unit === "bytes" && scale === "doubling") {
    for (const [power, name] of [[30, "GiB"], [20, "MiB"], [10, "KiB"]])
      if (value >= 2 ** power) return `${value / 2 ** power} ${name}`;
    return `${value} bytes`;
  }
  if (unit === "" && value >= 1e6) {
    const [size, word] = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]].find(([size]) => value >= size);
    return `${value / size} ${word}`;
  }
  return `${value} ${unit.replace("us", "µs")}`.trim();
}

// Where a value lies between the ends of an axis, 0 to 1.
function placeOn(axis, value) {
  if (axis.high === axis.low) return 0.5;
  const f = axis.isLog ? Math.log : (x) => x;
  return (f(value) - f(axis.low)) / (f(axis.high) - f(axis.low));
}

// Lines of the outputs that share the first one's unit.
class Chart {
  constructor(parent, play) {
    this.play = play;
    this.outputs = play.outputs.filter(({isDrawn}) => isDrawn);
    this.over = play.inputs.find((input) => input.name === play.over);
    this.figure = add(parent, "figure");
    // In pixels at first, so that text has its size on a narrow screen, too.
    this.width = Math.max(300, Math.min(640, parent.clientWidth ?? 640));
    this.svg = add(this.figure, "svg", {viewBox: `0 0 ${this.width} 250`, role: "img"});
    add(this.figure, "figcaption", {}, `over ${this.over.label}`);
  }

  draw(values) {
    const formula = FORMULAS[this.play.formula], {stops, name} = this.over;
    const rows = stops.map((stop) => formula({...values, [name]: stop}));
    const seen = rows.flatMap((row) => this.outputs.map((output) => row[output.name])).filter((y) => y > 0);
    const isPercent = this.outputs[0].unit === "%";
    this.x = {low: stops[0], high: stops.at(-1), isLog: this.over.scale !== "whole" || stops.length > 100};
    const low = Math.min(...seen);
    // At least a factor of two, so that lines that nearly meet do so in the chart.
    this.y = isPercent ? {low: 0, high: 100} : {low, high: Math.max(2 * low, ...seen), isLog: true};
    this.svg.replaceChildren();
    this.drawFrame();
    for (const output of this.outputs) {
      const points = rows.map((row, k) => [stops[k], row[output.name]]).filter(([, y]) => y !== null && (y > 0 || isPercent));
      add(this.svg, "polyline", {points: points.map(([x, y]) => this.at(x, y).join()).join(" "), fill: "none",
                                 stroke: output.colour, "stroke-width": 2.5, "stroke-dasharray": output.dashes});
    }
    const [x] = this.at(values[name], this.y.high);
    add(this.svg, "line", {x1: x, x2: x, y1: 10, y2: 215, class: "here"});
    const now = formula(values);
    for (const output of this.outputs) {
      if (now[output.name] === null || (now[output.name] <= 0 && !isPercent)) continue;
      const [cx, cy] = this.at(values[name], now[output.name]);
      add(this.svg, "circle", {cx, cy, r: 4.5, fill: output.colour});
    }
    this.svg.setAttribute("aria-label", `${this.outputs.map(({label}) => label).join("; ")}, over ${this.over.label}; the table has the values`);
  }

  at(x, y) {
    return [70 + (this.width - 80) * placeOn(this.x, x), 215 - 205 * placeOn(this.y, y)].map((place) => Math.round(place * 10) / 10);
  }

  drawFrame() {
    add(this.svg, "path", {d: `M70 10V215H${this.width - 10}`, fill: "none", class: "axis"});
    const {unit} = this.outputs[0];
    for (const part of [0, 0.5, 1]) {
      const between = ({low, high, isLog}) => isLog ? low * (high / low) ** part : low + part * (high - low);
      add(this.svg, "text", {x: 64, y: 219 - 205 * part, "text-anchor": "end"}, textOf(between(this.y), unit));
      const stop = this.over.stops.reduce((best, x) => Math.abs(placeOn(this.x, x) - part) < Math.abs(placeOn(this.x, best) - part) ? x : best);
      add(this.svg, "text", {x: this.at(stop, this.y.low)[0], y: 238, "text-anchor": ["start", "middle", "end"][2 * part]}, stopText(stop, this.over));
    }
  }
}

class Play {
  constructor(place) {
    this.play = JSON.parse(place.dataset.play);
    this.play.outputs.forEach((output, i) => {
      output.colour = COLOURS[i % COLOURS.length];
      output.dashes = ["", "7 4", "2 3", "9 3 2 3"][i % 4];
      output.isDrawn = output.unit === this.play.outputs[0].unit;
    });
    this.values = Object.fromEntries(this.play.inputs.map(({name, at}) => [name, at]));
    this.moves = {};  // each slider's function that moves it
    place.replaceChildren();
    const sliders = add(place, "div", {class: "sliders"});
    for (const input of this.play.inputs.filter(({moves}) => moves)) this.addSlider(sliders, input);
    const fixed = this.play.inputs.filter(({moves}) => !moves);
    if (fixed.length > 0)
      add(place, "p", {class: "fixed"}, `With ${fixed.map((input) => `${input.label}: ${stopText(input.at, input)}`).join(", ")}.`);
    if (this.play.picture === "ring") {
      this.picture = new Ring(place, this.play, this.moves[this.play.over]);
    } else {
      this.addFigures(place);
      this.picture = new Chart(place, this.play);
    }
    this.update();
  }

  addSlider(parent, input) {
    const label = add(parent, "label");
    add(label, "span", {}, input.label);
    const shown = add(label, "output");
    const slider = add(label, "input", {type: "range", min: 0, max: input.stops.length - 1, step: 1});
    slider.value = input.stops.indexOf(input.at);
    const show = () => {
      this.values[input.name] = input.stops[Number(slider.value)];
      shown.textContent = stopText(this.values[input.name], input);
      slider.setAttribute("aria-valuetext", shown.textContent);
    };
    slider.addEventListener("input", () => { show(); this.update(); });
    this.moves[input.name] = (stop) => { slider.value = stop; show(); this.update(); };
    show();
  }

  addFigures(place) {
    const body = add(add(place, "table", {class: "figures"}), "tbody");
    this.figures = this.play.outputs.map((output) => {
      const row = add(body, "tr"), name = add(row, "th", {scope: "row"});
      add(name, "span", {class: "key", style: output.isDrawn ? `background:${output.colour}` : ""});
      name.append(output.label);
      return add(row, "td");
    });
  }

  update() {
    const found = FORMULAS[this.play.formula](this.values);
    this.figures?.forEach((cell, i) => { cell.textContent = textOf(found[this.play.outputs[i].name], this.play.outputs[i].unit); });
    this.picture.draw(this.values);
  }
}

if (typeof document === "object")
  for (const place of document.querySelectorAll(".play")) new Play(place);
