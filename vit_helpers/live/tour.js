/** The guided tour: its dock, which goes from step to step. The steps themselves are in tour_steps.js. */
import { SAMPLES } from "./pen.js";
import { inSight, makeProof } from "./proof.js";
import { STEPS, passWith } from "./tour_steps.js";
import { SWITCHES } from "./vit.js";

const SURE = 0.8; // every step begins with a digit that is read with at least this probability
const START = { token: 0, patch: null, block: 0, head: 0, source: "tour" };
const EXAMPLE = { strokes: SAMPLES[3], ghost: true };
const underStrip = () => { // where the strip ends, if it lies over the article
  const strip = document.getElementById("strip"), { top, bottom } = strip.getBoundingClientRect();
  return getComputedStyle(strip).position === "sticky" && top <= 0 ? bottom : 0;
};
const staysBeside = (place) => { // the drawing and the answer, on wide screens
  const rail = place.closest(".rail");
  return rail && getComputedStyle(rail).position === "sticky";
};
const BESIDE = matchMedia("(min-width: 1180px)"); // the dock is at the right, and covers nothing

/**
 * @param {object} page what a step may read and do: state, vit, model, pick(token), choose(block, head), drawSample(digit),
 *   save(), load(saved)
 * @returns {{start: function(): void, check: function(): void}} check: look whether the visitor has just answered
 */
export function makeTour(page) {
  const part = (name) => document.getElementById(`tour-${name}`), panel = document.getElementById("tour");
  const proof = makeProof(part("proof"), page.vit.config, free);
  let now = -1, solved = false, moving = false, memory = {};
  let home = null, first = null; // what the visitor had before the tour; what the model saw at the beginning of the step
  let healthy = null; // the pass of the drawing without any change

  function start() {
    window.stopDemo?.();
    home = page.save();
    show(0);
  }

  /** Put back what the step has changed, except for a drawing that stays. */
  function leave() {
    if (now < 0) return;
    if (STEPS[now].keeps) {
      const { drawing, chosen } = page.save();
      home = { ...home, drawing, chosen: { ...home.chosen, source: chosen.source } };
    }
    page.load(home);
  }

  /** Begin from the same state whatever happened before. */
  function enter(step) {
    const begin = (drawing, chosen) =>
      page.load({ drawing, switches: { ...SWITCHES }, chosen: { ...home.chosen, ...chosen } });
    begin(home.drawing, step.keeps ? { ...START, source: home.chosen.source } : START); // what was drawn before counts
    if (page.state.empty || page.state.seen.confidence < SURE) begin(EXAMPLE, START);
    if (step.start) begin(page.save().drawing, { ...START, ...step.start(page) });
    first = shown();
  }

  function show(n) {
    document.querySelector(".in-focus")?.classList.remove("in-focus");
    moving = true;
    leave();
    moving = false;
    if (n >= STEPS.length || n < 0) return close();
    const step = STEPS[n];
    [now, solved, memory] = [n, false, {}];
    moving = true;
    enter(step);
    moving = false;
    proof.begin(step.proof);
    panel.hidden = false;
    document.body.classList.add("touring");
    writeHead(step);
    panel.classList.remove("solved", "proven");
    say("");
    fill();
    showChoices(step);
    panel.scrollTop = 0;
    const target = document.querySelector(step.at), place = target.closest(".bug") ?? target;
    (place.closest("section") ?? place).classList.add("in-focus");
    leaveRoom();
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    place.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    part("title").focus({ preventScroll: true });
    check();
  }

  function writeHead(step) {
    const link = document.querySelector(`[data-notebook="${step.notebook}"]`).cloneNode(true);
    part("count").textContent = `${now + 1} of ${STEPS.length}`;
    part("notebook").replaceChildren("· Notebook ", link);
    part("title").textContent = step.title;
    part("back").disabled = now === 0;
    part("next").textContent = now === STEPS.length - 1 ? "Finish" : "Skip";
    part("next").classList.remove("primary");
  }

  /** The texts, which may contain numbers of the drawing */
  function fill() {
    for (const name of ["text", "task"]) {
      const text = STEPS[now][name], filled = typeof text === "function" ? text(page) : text;
      if (part(name).textContent !== filled) part(name).textContent = filled;
    }
  }

  function showChoices(step) {
    const buttons = (step.choices?.(page) ?? []).map(([label], i) => button(label, () => choose(step, i)));
    if (step.samples) {
      buttons.push(...SAMPLES.slice(0, 10).map((_, n) => button(String(n), () => page.drawSample(n), `Draw a sample ${n}`)));
    }
    part("choices").replaceChildren(...buttons);
    part("choices").classList.toggle("offered", Boolean(step.samples));
  }

  function button(label, act, name = label) {
    return Object.assign(document.createElement("button"), {
      type: "button", textContent: label, ariaLabel: name, onclick: act,
    });
  }

  function choose(step, i) {
    if (alteredHint()) return say(alteredHint());
    const [, right, why] = step.choices(page)[i]; // asked again, because the drawing may have changed since
    if (right) solve(why);
    else say(why);
    for (const one of part("choices").children) one.disabled = right;
    if (right) part("next").focus();
  }

  function say(text) {
    if (part("state").textContent !== text) part("state").textContent = text;
  }

  function solve(why) {
    solved = true;
    panel.classList.add("solved");
    say(why);
    part("next").textContent = now === STEPS.length - 1 ? "Finish" : "Next";
    part("next").classList.add("primary");
    uncover();
  }

  function check() {
    if (moving || now < 0 || !page.state.seen) return null;
    prove();
    const altered = alteredHint(), found = altered ? { hint: altered } : STEPS[now].check?.(page, memory);
    if (solved) return say(found?.done ?? part("state").textContent); // the numbers of a visitor who goes on
    fill();
    if (found?.done) return solve(found.done);
    if (!STEPS[now].choices || altered) say(found?.hint ?? "");
    return null;
  }

  /** What to say while a switch is changed with which the step has nothing to do, or "" */
  function alteredHint() {
    const { switches = [] } = STEPS[now], others = Object.keys(SWITCHES).filter((name) => !switches.includes(name));
    return others.every((name) => page.vit.switches[name] === SWITCHES[name]) ? "" :
      "Something else is changed, too. Put everything back first.";
  }

  /** What the model sees now, as `makeProof` shows it */
  function shown(seen = page.state.seen) {
    const { pixels, token, block, head } = page.state;
    return { seen, pixels, view: { token, block, head } };
  }

  /** What to compare with: where the step is about switches, the same drawing without them, or else what it began with */
  function compared() {
    if (!STEPS[now].switches) return first;
    if (healthy?.pixels !== page.state.pixels) healthy = shown(passWith(page, SWITCHES));
    return shown(healthy.seen);
  }

  function prove() {
    const before = compared(), was = panel.classList.contains("proven");
    panel.classList.toggle("proven", proof.show(before, shown()));
    if (!was && panel.classList.contains("proven")) uncover();
  }

  function close() {
    now = -1;
    panel.hidden = true;
    document.body.classList.remove("touring");
    const start = document.getElementById("start-tour"); // not there on the full screen
    (start.offsetParent ? start : document.getElementById("classroom")).focus();
  }

  /** A panel at the bottom lies over the end of the page, which is made longer by as much. */
  function leaveRoom() {
    const covered = panel.hidden || BESIDE.matches ? 0 : panel.offsetHeight;
    document.documentElement.style.setProperty("--dock", `${covered}px`);
  }

  /** What of the window neither dock nor answer nor strip lies over, from top to bottom.  place: of which part of the page */
  function free(place) {
    const bar = document.getElementById("answer-box"), isStuck = getComputedStyle(bar).position === "sticky";
    const box = bar.getBoundingClientRect(), covered = panel.hidden || BESIDE.matches ? 0 : panel.offsetHeight;
    const top = Math.max(isStuck && box.top <= 0 ? box.bottom : 0, place?.closest("main") ? underStrip() : 0);
    return { top, bottom: innerHeight - covered };
  }

  /** Scroll until nothing covers what the visitor needs to see, if all of it has room. */
  function uncover() {
    leaveRoom();
    const places = STEPS[now].look.map((at) => document.querySelector(at)).filter((place) => !staysBeside(place));
    const area = free(places[0]);
    if (!places.length) return;
    const boxes = places.filter((place) => !inSight(place, { top: 0, bottom: area.bottom }) || !place.closest("#answer-box"))
      .map((place) => place.getBoundingClientRect());
    const top = Math.min(...boxes.map((box) => box.top)), bottom = Math.max(...boxes.map((box) => box.bottom));
    if (top < area.top) scrollBy({ top: top - area.top - 8 });
    else if (bottom > area.bottom) scrollBy({ top: Math.min(bottom - area.bottom + 8, Math.max(0, top - area.top - 8)) });
  }

  new ResizeObserver(leaveRoom).observe(panel);
  BESIDE.addEventListener("change", leaveRoom);
  addEventListener("scroll", () => now >= 0 && prove(), { passive: true });
  part("back").onclick = () => show(now - 1);
  part("next").onclick = () => show(now + 1);
  part("close").onclick = () => show(-1);
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    show(-1);
  });
  return { start, check };
}
