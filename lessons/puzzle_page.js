"use strict";
// The puzzles of a page: a few cases each, judged by FORMULAS, which a test compares with runs of the program. The browser keeps which
// cases are solved.

const PUZZLES_KEPT_AS = `lockstep: puzzles: ${document.title}`;

function solvedCases() {
  try {
    return JSON.parse(localStorage.getItem(PUZZLES_KEPT_AS)) ?? {};
  } catch {
    return {};
  }
}

function rankList(ranks) {
  return ranks.length === 1 ? `rank ${ranks[0]}` : `ranks ${ranks.slice(0, -1).join(", ")} and ${ranks.at(-1)}`;
}

function upTo(count) {
  return Array.from({length: count}, (_, i) => i);
}

// Buttons that are on or off, and what each of them says then.
class Switches {
  constructor(parent, count, words) {
    this.isOn = upTo(count).map(() => false);
    this.isOn.forEach((_, i) => {
      const button = add(parent, "button", {type: "button", "aria-pressed": "false", class: "switch"}, words(i, false));
      button.addEventListener("click", () => {
        this.isOn[i] = !this.isOn[i];
        button.setAttribute("aria-pressed", String(this.isOn[i]));
        button.textContent = words(i, this.isOn[i]);
      });
    });
  }

  bits() {
    return this.isOn.reduce((sum, isOn, i) => sum + (isOn ? 2 ** i : 0), 0);
  }
}

// Each kind: cases, a question, what to fill in, and a verdict: "" if it is right.
const PUZZLES = {
  sends: {
    title: "Place the sends so that nothing waits",
    cases: [{ranks: 2}, {ranks: 4}, {ranks: 5}],
    question: ({ranks}) => `Each of ${ranks} ranks sends to its right neighbour, and receives from its left one. A send waits until its receive begins. ` +
      "Who sends first, so that all messages need the fewest rounds?",
    build: (place, {ranks}) => new Switches(place, ranks, (rank, isOn) => `rank ${rank} ${isOn ? "sends" : "receives"} first`),
    judge: ({ranks}, switches) => {
      const roundsOf = (order) => FORMULAS.waiting_sends({ranks, order}).rounds;
      const rounds = roundsOf(switches.bits()), fewest = Math.min(...upTo(2 ** ranks).map((order) => roundsOf(order) ?? Infinity));
      if (rounds === null) return `Nothing moves: every rank ${switches.isOn[0] ? "sends" : "receives"} first, and waits for its neighbour forever.`;
      return rounds === fewest ? "" : `It ends after ${rounds} rounds, but somebody waits longer than needed.`;
    },
  },
  whose: {
    title: "Whose data is this?",
    cases: [{ranks: 4, rank: 2, chunk: 0, message: 1}, {ranks: 4, rank: 0, chunk: 1, message: 2}, {ranks: 5, rank: 3, chunk: 3, message: 4}],
    question: ({ranks, rank, chunk, message}) => `A ring reduce-scatter on ${ranks} ranks: chunk c starts on rank c + 1, and each rank on its trip to the right adds its data. ` +
      `Whose data are in chunk ${chunk} of rank ${rank}, after ${message} message${message === 1 ? "" : "s"} to each rank?`,
    build: (place, {ranks}) => new Switches(place, ranks, (rank, isOn) => `${isOn ? "✓ " : ""}rank ${rank}`),
    judge: (given, switches) => {
      const {holds, count} = FORMULAS.ring_trip(given), named = switches.isOn.filter(Boolean).length;
      if (switches.bits() === holds) return "";
      return named === count ? `${count} is the right number of ranks, but not these.` : `You name ${named} of ${given.ranks} ranks; the number is wrong.`;
    },
  },
  owes: {
    title: "Which rank owes what?",
    cases: [{ranks: 3, message: 0}, {ranks: 4, message: 1}, {ranks: 5, message: 3}],
    question: ({ranks, message}) => `The same ring on ${ranks} ranks. Each rank has received ${message} message${message === 1 ? "" : "s"}. Which chunk does each rank owe its right neighbour now, so that rank r ends with the sum of chunk r?`,
    build: (place, {ranks}) => upTo(ranks).map((rank) => {
      const choice = add(add(place, "label", {}, `rank ${rank} `), "select");
      for (const chunk of upTo(ranks)) add(choice, "option", {value: String(chunk)}, `chunk ${chunk}`);
      choice.value = "0";
      return choice;
    }),
    judge: ({ranks, message}, choices) => {
      const wrong = choices.map((choice, rank) => Number(choice.value) === FORMULAS.ring_trip({ranks, rank, chunk: 0, message}).leaving ? -1 : rank).filter((rank) => rank >= 0);
      return wrong.length === 0 ? "" : `Not yet: look at ${rankList(wrong)}.`;
    },
  },
};

class Puzzle {
  constructor(place) {
    Object.assign(this, {place, name: place.dataset.puzzle});
    this.kind = PUZZLES[this.name];
    place.replaceChildren();
    add(place, "h3", {}, this.kind.title);
    this.body = add(place, "div");
    this.show(Math.min(solvedCases()[this.name] ?? 0, this.kind.cases.length));
  }

  show(number) {
    this.number = number;
    this.body.replaceChildren();
    const {cases} = this.kind;
    if (number === cases.length) {
      add(this.body, "p", {role: "status"}, `All ${cases.length} cases are solved. `);
      add(this.body, "button", {type: "button"}, "again").addEventListener("click", () => { this.keep(0); this.show(0); });
      return;
    }
    add(this.body, "p", {}, `${number + 1} of ${cases.length}: ${this.kind.question(cases[number])}`);
    const controls = this.kind.build(add(this.body, "div", {class: "choices"}), cases[number]);
    const check = add(this.body, "button", {type: "button"}, "check"), next = add(this.body, "button", {type: "button"}, "next");
    next.hidden = true;
    const verdict = add(this.body, "p", {role: "status"});
    check.addEventListener("click", () => {
      const fault = this.kind.judge(cases[number], controls);
      verdict.textContent = fault || "Right.";
      next.hidden = fault !== "";
      if (!fault) this.keep(number + 1);
    });
    next.addEventListener("click", () => this.show(number + 1));
  }

  keep(number) {
    try {
      localStorage.setItem(PUZZLES_KEPT_AS, JSON.stringify({...solvedCases(), [this.name]: number}));
    } catch {
      // This browser keeps nothing.
    }
  }
}

for (const place of document.querySelectorAll(".puzzle")) new Puzzle(place);
