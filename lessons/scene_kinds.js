"use strict";
// The kinds of animations. Each draws one moment of a recording into an empty drawing, and returns what can be seen there, in words.

// Places on a ring, clockwise; four ranks lie in the corners.
function ringPlaces(ranks, width, height, boxWidth, boxHeight) {
  const across = (width - boxWidth) / 2 - 2, down = (height - boxHeight) / 2 - 2, stretch = ranks === 4 ? Math.SQRT2 : 1;
  return Array.from({length: ranks}, (_, rank) => {
    const angle = 2 * Math.PI * rank / ranks - (ranks === 4 ? 0.75 : 0.5) * Math.PI;
    return [width / 2 + across * stretch * Math.cos(angle), height / 2 + down * stretch * Math.sin(angle)];
  });
}

function between([x, y], [toX, toY], part) {
  return [x + (toX - x) * part, y + (toY - y) * part];
}

function timeText(microseconds) {
  return microseconds < 1000 ? `${microseconds.toFixed(1)} µs` : `${(microseconds / 1000).toFixed(2)} ms`;
}

// Every message from its departure to its arrival.
class MessagesScene {
  constructor(data, width) {
    Object.assign(this, {data, height: 270});
    this.places = ringPlaces(data.ranks, width, this.height, 64, 30);
    this.most = Math.max(...data.messages.map((message) => message[4]));
  }

  draw(svg, time) {
    let travelling = 0, arrived = 0, sent = 0;
    for (const [from, to] of this.data.messages) {
      const [[x1, y1], [x2, y2]] = [this.places[from], this.places[to]];
      add(svg, "line", {x1, y1, x2, y2, class: "axis"});
    }
    this.places.forEach(([x, y], rank) => {
      add(svg, "rect", {x: x - 32, y: y - 15, width: 64, height: 30, rx: 6, class: "rank"});
      add(svg, "text", {x, y: y + 4, "text-anchor": "middle"}, `rank ${rank}`);
    });
    for (const [from, to, begin, end, bytes] of this.data.messages) {
      if (begin <= time && from === 0) sent += bytes;
      if (end <= time) ++arrived;
      if (begin > time || end <= time) continue;
      ++travelling;
      const [cx, cy] = between(this.places[from], this.places[to], (time - begin) / (end - begin));
      add(svg, "circle", {cx, cy, r: 4 + 5 * Math.sqrt(bytes / this.most), fill: COLOURS[from % COLOURS.length], class: "message"});
    }
    return `After ${timeText(time)}: ${travelling} messages on their way, ${arrived} arrived; rank 0 has sent ${sent.toLocaleString("en")} bytes.`;
  }
}

// Whose data the chunks of each rank hold: a colour for each rank whose data are in the sum.
class HeldScene {
  constructor(data, width) {
    Object.assign(this, {data, height: 270, cell: 26});
    this.box = data.ranks * this.cell + 12;
    this.places = ringPlaces(data.ranks, width, this.height, this.box, 70);
  }

  draw(svg, time) {
    const step = Math.min(Math.floor(time), this.data.end), part = time - step;
    this.places.forEach(([x, y], rank) => {
      add(svg, "rect", {x: x - this.box / 2, y: y - 35, width: this.box, height: 70, rx: 8, class: "rank"});
      add(svg, "text", {x, y: y - 20, "text-anchor": "middle"}, `rank ${rank}`);
      this.data.held[rank][step].times.forEach((times, chunk) =>
        this.drawChunk(svg, x + (chunk - this.data.ranks / 2) * this.cell + 2, y - 12, times));
    });
    if (step < this.data.end && part > 0) this.drawMessages(svg, step + 1, part);
    const complete = this.data.held.map((states) => states[step].times.filter((times) => times.every((count) => count === 1)).length);
    return `After ${step} message${step === 1 ? "" : "s"} to each rank: complete chunks on ranks 0 to ${this.data.ranks - 1}: ${complete.join(", ")}.`;
  }

  drawChunk(svg, x, y, times) {
    const isComplete = times.every((count) => count === 1), height = 40 / times.length;
    times.forEach((count, rank) => {
      if (count > 0) add(svg, "rect", {x, y: y + rank * height, width: 22, height, fill: COLOURS[rank % COLOURS.length]});
    });
    add(svg, "rect", {x, y, width: 22, height: 40, class: isComplete ? "complete" : "part"});
  }

  drawMessages(svg, number, part) {
    this.data.held.forEach((states, rank) => {
      const {from, first} = states[number], times = this.data.held[from][number - 1].times[first];
      const [x, y] = between(this.places[from], this.places[rank], part);
      this.drawChunk(svg, x - 11, y - 20, times);
    });
  }
}

// The passes of each rank of a pipeline, and the micro-batches that it holds between a forward and its backward pass.
class PassesScene {
  constructor(data, width) {
    Object.assign(this, {data, width, left: 52, right: 76, row: 40, beginning: 0.09});  // before the warm-up ends
    this.height = 24 + this.row * data.ranks;
    this.warmUp = Array.from({length: data.ranks}, (_, rank) => Math.min(...data.passes.filter((pass) => pass[0] === rank && pass[1] !== "F").map((pass) => pass[3])));
  }

  x(time) {
    return this.left + (this.width - this.left - this.right) * time / this.data.end;
  }

  draw(svg, time) {
    const held = new Map();
    for (let rank = 0; rank < this.data.ranks; ++rank) {
      add(svg, "text", {x: 0, y: this.row * rank + 26}, `rank ${rank}`);
      held.set(rank, new Set());
    }
    for (const [rank, pass, microBatch, begin, end] of this.data.passes) {
      if (begin >= time) continue;
      if (pass === "F") held.get(rank).add(microBatch);
      else if (end <= time) held.get(rank).delete(microBatch);
      const x = this.x(begin), width = this.x(Math.min(end, time)) - x, y = this.row * rank + 8;
      const kind = pass !== "F" ? "backward" : begin < this.warmUp[rank] ? "warm" : "forward";
      add(svg, "rect", {x, y, width, height: 26, class: kind});
      if (width > 9) add(svg, "text", {x: x + width / 2, y: y + 17, "text-anchor": "middle", class: "on"}, String(microBatch));
    }
    for (const [rank, own] of held)
      add(svg, "text", {x: this.width - this.right + 8, y: this.row * rank + 26}, `holds ${own.size}`);
    const x = this.x(time);
    add(svg, "line", {x1: x, x2: x, y1: 2, y2: this.height - 16, class: "here"});
    add(svg, "text", {x: this.left, y: this.height - 3, class: "small"}, "dark blue: warm-up · blue: forward · orange: backward");
    return `At ${Number(time.toFixed(1))} of ${this.data.end}: ranks hold ${[...held.values()].map(({size}) => size).join(", ")} micro-batches.`;
  }
}

// The parameters and gradients of each unit on each rank: its shard, or the whole unit while it is gathered.
class ShardsScene {
  constructor(data, width) {
    Object.assign(this, {data, left: 52, row: 58});
    this.column = (width - this.left) / data.units;
    this.height = 36 + this.row * data.ranks;
  }

  draw(svg, time) {
    const {ranks, units} = this.data;
    let full = 0;
    for (let unit = 0; unit < units; ++unit)
      add(svg, "text", {x: this.left + (unit + 0.5) * this.column, y: 12, "text-anchor": "middle"}, `unit ${unit}`);
    for (let rank = 0; rank < ranks; ++rank) {
      add(svg, "text", {x: 0, y: this.row * rank + 44}, `rank ${rank}`);
      for (let unit = 0; unit < units; ++unit) {
        const {isGathered, gradient, runs} = this.stateOf(rank, unit, time);
        if (isGathered && rank === 0) ++full;
        const x = this.left + unit * this.column + 3, y = this.row * rank + 18, width = this.column - 8;
        if (runs) add(svg, "rect", {x: x - 2, y: y - 2, width: width + 4, height: 52, class: "now"});
        this.drawBar(svg, x, y, width, rank, isGathered ? 1 : 1 / ranks, COLOURS[0]);
        this.drawBar(svg, x, y + 24, width, rank, gradient, COLOURS[1]);
        if (runs) add(svg, "text", {x: x + width / 2, y: y + 16, "text-anchor": "middle", class: "on"}, runs);
      }
    }
    add(svg, "text", {x: this.left, y: this.height - 3, class: "small"}, "blue: parameters · orange: gradients");
    return `After ${timeText(time)}: rank 0 holds ${full} of ${units} units whole, and its shard of the others.`;
  }

  drawBar(svg, x, y, width, rank, part, fill) {
    add(svg, "rect", {x, y, width, height: 22, class: "part"});
    const begin = part === 1 ? 0 : rank / this.data.ranks;
    if (part > 0) add(svg, "rect", {x: x + begin * width, y, width: part * width, height: 22, fill});
  }

  // Gathered until it is freed; a gradient from its backward pass, of which the reduce-scatter leaves a shard.
  stateOf(rank, unit, time) {
    const state = {isGathered: false, gradient: 0, runs: ""};
    const own = this.data.events.filter((event) => event[0] === rank && event[2] === unit).sort((a, b) => a[4] - b[4]);
    for (const [, kind, , begin, end] of own) {
      if ((kind === "F" || kind === "B") && begin <= time && time < end) state.runs = kind === "F" ? "forward" : "backward";
      if (end > time) continue;
      if (kind === "AG") state.isGathered = true;
      if (kind === "free") state.isGathered = false;
      if (kind === "B") state.gradient = 1;
      if (kind === "RS") state.gradient = 1 / this.data.ranks;
    }
    return state;
  }
}

const SCENES = {messages: MessagesScene, held: HeldScene, passes: PassesScene, shards: ShardsScene};
