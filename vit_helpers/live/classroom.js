/** The classroom screen: the whole pass on one screen, in large type and without prose, for a projector. */
import { el } from "./panels.js";
import { headInWords } from "./strip.js";

const KEY = [
  ["attention", "attention weight"], ["value", "added by a head"], ["class", "class token"], ["patch", "patch token"],
];
const CONTROLS = "button, select, input, a, canvas";

/**
 * @param {object} config of the model
 * @param {object} does select(changes), toggleHead(l, h), tour: what `makeTour` returns, redraw(): the page has another size
 * @returns {{show: function(object, object): void}} show(seen, view)
 */
export function makeClassroom(config, { select, toggleHead, tour, redraw }) {
  const root = document.documentElement, bar = document.getElementById("classroom"), sentence = el("b");
  const panel = document.getElementById("tour"), fit = document.querySelector(".fit");
  const choose = document.querySelector("#head-figure .choose"), keyChoice = document.getElementById("pick-key").parentNode;
  const isOn = () => root.classList.contains("classroom");
  let chosen = { block: 0, head: 0 }, byKey = false, scrolled = 0, ended = false; // ended: who went on after the last step
  let whole = false; // the screen was given for this visit; the event that an earlier one ended may come late

  const choices = {
    token: choice("Token", ["class", ...numbers(config.num_tokens - 1)]),
    block: choice("Block", numbers(config.depth)), head: choice("Head", numbers(config.num_heads)),
  };
  const off = el("button", { type: "button", id: "classroom-off" }), leaving = el("button", { type: "button" }, "Leave ");
  const scoring = el("button", { type: "button", id: "classroom-score", "aria-expanded": "false" }, "Score");
  const going = el("button", { type: "button", id: "classroom-tour" }), space = el("kbd", {}, "Space");
  leaving.append(el("kbd", {}, "Esc"));
  for (const { label, box } of Object.values(choices)) bar.append(label, box);
  bar.append(off, scoring, going, leaving);
  bar.after(el("p", { id: "classroom-said" }, sentence, ...KEY.map(([color, text]) =>
    el("span", { style: `--of: var(--${color})` }, text))));
  for (const [name, { box }] of Object.entries(choices)) {
    box.addEventListener("change", () => select({ [name]: Number(box.value), hovered: null }));
  }
  off.addEventListener("click", () => toggleHead(chosen.block, chosen.head));
  scoring.addEventListener("click", () => openScore(!root.classList.contains("scoring")));
  going.addEventListener("click", () => {
    end(false);
    next();
  });
  leaving.addEventListener("click", leave);
  document.getElementById("start-classroom").addEventListener("click", enter);

  function enter() {
    scrolled = scrollY;
    end(false);
    turn(true);
    root.requestFullscreen?.().catch(() => {}); // where that is not allowed, the window has to do
    bar.focus();
  }

  function leave() {
    if (!isOn()) return;
    whole = false;
    openScore(false);
    turn(false);
    if (document.fullscreenElement) document.exitFullscreen();
    document.getElementById("start-classroom").focus({ preventScroll: true });
    const asked = document.querySelector(".touring .in-focus");
    if (asked) asked.scrollIntoView();
    else scrollTo(0, scrolled);
  }

  function turn(on) {
    root.classList.toggle("classroom", on);
    document.querySelector("#strip ol").inert = on; // there is nowhere to go
    redraw();
  }

  /** Show how the open score comes about: the part of the article that does, below the picture, with the choice of the key. */
  function openScore(on) {
    root.classList.toggle("scoring", on);
    scoring.setAttribute("aria-expanded", String(on));
    if (on) document.getElementById("strip").after(fit);
    else choose.after(fit);
    (on ? fit : choose).append(keyChoice);
  }

  /** The next step.  Only the button begins again after the last one. */
  function next() {
    if (!panel.hidden) {
      document.getElementById("tour-next").click();
      return end(panel.hidden);
    }
    return ended || tour.start();
  }

  function end(now) {
    ended = now;
    going.replaceChildren(...(ended ? ["Tour again"] : ["Tour ", space]));
  }

  new ResizeObserver(([{ target }]) => root.style.setProperty("--room-dock", `${target.offsetHeight}px`))
    .observe(panel);
  document.addEventListener("fullscreenchange", () => {
    const given = Boolean(document.fullscreenElement);
    if (given && isOn()) whole = true;
    else if (given) document.exitFullscreen(); // nobody waits for it any more
    else if (whole) leave();
  });
  addEventListener("pointerdown", () => (byKey = false), true);
  addEventListener("keydown", (event) => {
    if (event.key === "Tab") byKey = true;
    if (!isOn() || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = byKey && document.activeElement.matches(CONTROLS); // who came with Tab wants the control's own Space
    const does = { Escape: leave, " ": typing ? null : next }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    if (!event.repeat) does(); // a key that is held down is one step
  }, true);

  return {
    show(seen, view) {
      chosen = view;
      for (const [name, { box }] of Object.entries(choices)) box.value = view[name];
      const isOff = view.switches.heads && !view.switches.heads[view.block][view.head];
      off.textContent = isOff ? "Switch on" : "Switch off";
      sentence.textContent = headInWords(seen, view);
    },
  };
}

const numbers = (count) => Array.from({ length: count }, (_, i) => String(i + 1));

/** A select of names, and its label */
function choice(name, names) {
  const id = `classroom-${name.toLowerCase()}`;
  const box = el("select", { id }, ...names.map((text, i) => el("option", { value: i }, text)));
  return { label: el("label", { for: id }, name), box };
}
