"use strict";
// The animation on a page's first screen: draws what a run recorded, as it was at one moment, and plays it. Until the predictions are
// locked it shows only the beginning.

const BEGINNING = 0.25;  // of the recording, unless its kind says less
const SECONDS_OF_A_SCENE = 12, FRAMES_PER_SECOND = 25;

class Scene {
  constructor(place) {
    this.data = JSON.parse(place.dataset.scene);
    this.timer = null;
    place.replaceChildren();
    const width = Math.max(300, Math.min(560, place.clientWidth ?? 560));
    this.kind = new SCENES[this.data.kind](this.data, width);
    this.svg = add(place, "svg", {viewBox: `0 0 ${width} ${this.kind.height}`, role: "img"});
    const controls = add(place, "div", {class: "controls"});
    this.button = add(controls, "button", {type: "button"}, "play");
    this.button.addEventListener("click", () => this.timer === null ? this.start() : this.stop());
    this.slider = add(controls, "input", {type: "range", min: 0, max: 1000, step: 1, "aria-label": "moment of the recording"});
    this.slider.addEventListener("input", () => { this.stop(); this.show(Number(this.slider.value)); });
    this.caption = add(place, "figcaption");
    this.note = add(place, "p", {class: "fixed"});
    this.reveal(document.querySelector("#results") === null);
    REVEALED.push((isRevealed) => this.reveal(isRevealed));
  }

  reveal(isRevealed) {
    if (this.isRevealed === isRevealed) return;
    this.isRevealed = isRevealed;
    this.last = isRevealed ? 1000 : Math.floor(1000 * (this.kind.beginning ?? BEGINNING));
    this.slider.setAttribute("max", this.last);
    this.note.textContent = isRevealed ? "" : "The beginning. The rest plays when your predictions are locked.";
    this.show(Math.round(this.last / 2));
  }

  // `moment` is in thousandths of the recording.
  show(moment) {
    this.moment = moment;
    this.slider.value = String(moment);
    this.svg.replaceChildren();
    const words = this.kind.draw(this.svg, this.data.end * moment / 1000);
    this.caption.textContent = words;
    this.svg.setAttribute("aria-label", words);
    this.slider.setAttribute("aria-valuetext", words);
  }

  start() {
    this.button.textContent = "stop";
    const step = 1000 / (SECONDS_OF_A_SCENE * FRAMES_PER_SECOND);
    if (this.moment >= this.last) this.show(0);
    this.timer = setInterval(() => {
      this.show(Math.min(this.last, this.moment + step));
      if (this.moment >= this.last) this.stop();
    }, 1000 / FRAMES_PER_SECOND);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "play";
  }
}

for (const place of document.querySelectorAll(".scene")) new Scene(place);
