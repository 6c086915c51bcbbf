"use strict";
// The picture of ring attention: blocks of keys that travel around a ring of ranks, and the softmax of one query as they come. Its
// numbers are those of FORMULAS.ring_attention.

const SECONDS_OF_A_STEP = 1.6;

// Four digits; a dash where there is no number.
function ringNumber(value) {
  return value === null ? "–" : String(Number(value.toFixed(3)));
}

class Ring {
  // `move` moves the slider of the step.
  constructor(parent, play, move) {
    Object.assign(this, {play, move, timer: null});
    this.button = add(parent, "button", {type: "button"}, "play");
    this.button.addEventListener("click", () => this.timer === null ? this.start() : this.stop());
    this.figure = add(parent, "figure");
    this.width = Math.max(300, Math.min(460, parent.clientWidth ?? 460));
    this.svg = add(this.figure, "svg", {viewBox: `0 0 ${this.width} 250`, role: "img", style: `max-width:${this.width}px`});
    add(this.svg, "path", {d: `M90 50H${this.width - 90}V200H90Z`, class: "axis"});
    for (const [x, y, sign] of [[this.width / 2, 50, "▶"], [this.width - 90, 125, "▼"], [this.width / 2, 200, "◀"], [90, 125, "▲"]])
      add(this.svg, "text", {x, y: y + 4, "text-anchor": "middle"}, sign);
    this.ranks = RING.queries.slice(0, RING.ranks).map((_, rank) => this.addRank(rank));
    this.blocks = this.ranks.map((_, rank) => this.addBlock(rank));
    this.caption = add(this.figure, "figcaption");
    this.addTable(parent);
  }

  // The middle of a rank: clockwise from the upper left corner.
  placeOf(rank) {
    return [rank === 0 || rank === 3 ? 90 : this.width - 90, rank < 2 ? 50 : 200];
  }

  addRank(rank) {
    const [x, y] = this.placeOf(rank);
    const box = add(this.svg, "rect", {x: x - 65, y: y - 40, width: 130, height: 80, rx: 8, class: "rank"});
    add(this.svg, "text", {x, y: y - 24, "text-anchor": "middle"}, `rank ${rank}: queries ${ringBlock(rank).join(", ")}`);
    return box;
  }

  // Drawn around the origin, and moved by a style, which glides.
  addBlock(rank) {
    const block = add(this.svg, "g", {class: "block"}), colour = COLOURS[rank];
    const shape = {x: -55, y: -14, width: 110, height: 44, rx: 6};
    add(block, "rect", {...shape, class: "ground"});
    add(block, "rect", {...shape, fill: colour, stroke: colour});
    add(block, "text", {x: 0, y: 3, "text-anchor": "middle"}, `block of rank ${rank}`);
    add(block, "text", {x: 0, y: 21, "text-anchor": "middle"}, `keys ${ringBlock(rank).join(", ")}`);
    return block;
  }

  addTable(parent) {
    const body = add(add(parent, "table", {class: "ring"}), "tbody"), head = add(body, "tr");
    for (const words of ["step", "block", "scores", "exp(h − h′)", "h", "s", "O", "l"]) add(head, "th", {scope: "col"}, words);
    this.rows = this.ranks.map((_, step) => {
      const row = add(body, "tr");
      add(row, "th", {scope: "row"}, String(step));
      return {row, cells: Array.from({length: 7}, () => add(row, "td"))};
    });
  }

  draw({step, query}) {
    this.step = step;
    const {ranks} = RING, home = Math.min(query, RING.queries.length - 1 - query);
    this.ranks.forEach((box, rank) => box.setAttribute("class", rank === home ? "rank asked" : "rank"));
    this.blocks.forEach((block, rank) => {
      const [x, y] = this.placeOf((rank + step) % ranks);
      block.setAttribute("style", `transform:translate(${x}px,${y}px)`);
    });
    this.rows.forEach(({row, cells}, k) => {
      row.setAttribute("class", k === step ? "now" : "");
      const found = FORMULAS.ring_attention({query, step: k});
      const words = [String(found.block), [found.first_score, found.second_score].map(ringNumber).join(", "),
                     ...[found.shrink, found.highest, found.sum, found.out, found.log_sum_exp].map(ringNumber)];
      cells.forEach((cell, i) => { cell.textContent = k <= step ? words[i] : ""; });
    });
    const masked = FORMULAS.ring_attention({query, step}).second_score === null ? "; it does not see a later key" : "";
    this.caption.textContent = `Query ${query} on rank ${home} is ${RING.queries[query]}, the keys 0 to 7 are ${RING.keys.join(", ")}${masked}.`;
    this.svg.setAttribute("aria-label", `Step ${step}: rank ${home} has the block of rank ${(home - step + ranks) % ranks}; the table has the numbers`);
  }

  start() {
    const last = RING.ranks - 1;
    this.button.textContent = "stop";
    this.timer = setInterval(() => this.step === last ? this.stop() : this.move(this.step + 1), SECONDS_OF_A_STEP * 1000);
    this.move(this.step === last ? 0 : this.step + 1);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "play";
  }
}
