"use strict";
// Asks for every prediction and answer on a lesson's page, as a walk in the terminal does: the result appears when the answer is
// locked or skipped, and all that follows the predictions when each of them is. Without this script the results are behind folds.

const TOLERANCE = 0.01;  // of answers that are numbers
const KEPT_AS = `lockstep: ${document.title}`;

// The locked answers by their questions' names, as typed. Empty where the browser keeps nothing.
function keptAnswers() {
  try {
    return JSON.parse(localStorage.getItem(KEPT_AS)) ?? {};
  } catch {
    return {};
  }
}

// False where the browser refuses to keep anything.
function keepAnswers(answers) {
  try {
    localStorage.setItem(KEPT_AS, JSON.stringify(answers));
    return true;
  } catch {
    return false;
  }
}

// A number of at least 0 without its unit, or null.
function numberIn(text) {
  const digits = text.replaceAll(",", "").trim();
  const number = digits === "" ? NaN : Number(digits);
  return Number.isFinite(number) && number >= 0 ? number : null;
}

function isNear(number, value) {
  return Math.abs(number - value) <= TOLERANCE * Math.abs(value);
}

class Ask {
  constructor(place, page) {
    Object.assign(this, JSON.parse(place.dataset.ask), {page, isSettled: false});
    this.fold = place.querySelector("details");
    this.fold.hidden = true;
    this.form = add(place, "form");
    if (this.choices) this.addChoices(); else this.addInadd();
    add(this.form, "button", {type: "submit"}, "lock");
    const skip = add(this.form, "button", {type: "button"}, this.is_prediction ? "skip" : "show the answer");
    skip.addEventListener("click", () => this.skip());
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.lock(); });
    this.verdict = add(place, "p", {role: "status"});
    place.append(this.fold);  // below the question
  }

  addInadd() {
    const label = add(this.form, "label", {}, this.is_prediction ? `your prediction (${this.unit}) ` : `your answer (${this.unit}, within 1 %) `);
    const input = add(label, "input", {type: "text", inputmode: "decimal", autocomplete: "off"});
    this.answer = () => input.value;
  }

  addChoices() {
    const group = add(this.form, "fieldset", {"aria-label": "your answer"});
    const inputs = this.choices.map((letter) => {
      const label = add(group, "label"), input = add(label, "input", {type: "radio", name: `answer ${this.name}`, value: letter});
      label.append(` ${letter}`);
      return input;
    });
    this.answer = () => inputs.find(({checked}) => checked)?.value ?? "";
  }

  fault(answer) {
    if (this.choices) return this.choices.includes(answer) ? "" : "choose an answer, or have it shown";
    return numberIn(answer) === null ? "write a number without its unit, such as 1000, 1,000 or 1e3" : "";
  }

  lock() {
    const answer = this.answer(), fault = this.fault(answer);
    if (fault) {
      this.verdict.textContent = fault;
      return;
    }
    const isKept = this.page.keep(this.name, answer);
    this.showLocked(answer, isKept ? "" : " This browser keeps no answers: it is forgotten when you close the page.");
  }

  showLocked(answer, remark = "") {
    const said = `${answer} ${this.unit ?? ""}`.trim();
    this.settle(`${this.is_prediction ? "You predicted" : "You answered"} ${said}; it is locked. ${this.verdictOf(answer)}${remark}`);
  }

  verdictOf(answer) {
    if (this.choices) return answer === this.is ? "Right." : "Wrong.";
    const number = numberIn(answer), isRight = isNear(number, this.value);
    if (!this.is_prediction) return isRight ? "Right." : "Wrong.";
    if (isRight) return "Your prediction is right.";
    return this.value === 0 ? "It is 0." : `That is ${Number((number / this.value).toPrecision(3))} times the closed form.`;
  }

  skip() {
    if (!this.isSettled) this.settle("Skipped. The page asks again when it is opened again.");
  }

  settle(verdict) {
    this.isSettled = true;
    this.form.hidden = true;
    this.verdict.textContent = verdict;
    this.fold.hidden = false;
    this.fold.open = true;
    if (this.is_prediction) this.fold.querySelector("summary").textContent = `closed form and measurement (${this.unit})`;
    this.page.update();
  }
}

class AskPage {
  constructor() {
    this.kept = keptAnswers();
    this.asks = [...document.querySelectorAll(".ask")].map((place) => new Ask(place, this));
    this.results = document.querySelector("#results");
    if (this.results) this.addGate();
    const forget = add(add(document.body, "p"), "button", {type: "button"}, "forget what is locked on this page");
    forget.addEventListener("click", () => { keepAnswers({}); location.reload(); });
    for (const ask of this.asks) {
      const answer = this.kept[ask.name];
      if (typeof answer === "string" && ask.fault(answer) === "") ask.showLocked(answer);
    }
    this.update();
  }

  // Above the results, while they are hidden.
  addGate() {
    this.gate = document.createElement("p");
    this.gate.setAttribute("class", "gate");
    this.gate.textContent = "The runs follow when each prediction above is locked or skipped. ";
    add(this.gate, "button", {type: "button"}, "skip all").addEventListener("click", () => this.predictions().forEach((ask) => ask.skip()));
    this.results.before(this.gate);
  }

  predictions() {
    return this.asks.filter((ask) => ask.is_prediction);
  }

  keep(name, answer) {
    this.kept[name] = answer;
    return keepAnswers(this.kept);
  }

  update() {
    if (!this.results) return;
    this.gate.hidden = this.predictions().every(({isSettled}) => isSettled);
    this.results.hidden = !this.gate.hidden;
    REVEALED.forEach((call) => call(this.gate.hidden));
  }
}

new AskPage();
