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
  const isOn = () => root.classList.contains("classroom");
  let chosen = { block: 0, head: 0 }, byKey = false, scrolled = 0;

  const choices = {
    token: choice("Token", ["class", ...numbers(config.num_tokens - 1)]),
    block: choice("Block", numbers(config.depth)), head: choice("Head", numbers(config.num_heads)),
  };
  const off = el("button", { type: "button", id: "classroom-off" }), leaving = el("button", { type: "button" }, "Leave ");
  const going = el("button", { type: "button", id: "classroom-tour" }, "Tour ");
  going.append(el("kbd", {}, "Space"));
  leaving.append(el("kbd", {}, "Esc"));
  for (const { label, box } of Object.values(choices)) bar.append(label, box);
  bar.append(off, going, leaving);
  bar.after(el("p", { id: "classroom-said" }, sentence, ...KEY.map(([color, text]) =>
    el("span", { style: `--of: var(--${color})` }, text))));
  for (const [name, { box }] of Object.entries(choices)) {
    box.addEventListener("change", () => select({ [name]: Number(box.value), hovered: null }));
  }
  off.addEventListener("click", () => toggleHead(chosen.block, chosen.head));
  going.addEventListener("click", next);
  leaving.addEventListener("click", leave);
  document.getElementById("start-classroom").addEventListener("click", enter);

  function enter() {
    scrolled = scrollY;
    turn(true);
    root.requestFullscreen?.().catch(() => {}); // where that is not allowed, the window has to do
    bar.focus();
  }

  function leave() {
    if (!isOn()) return;
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

  function next() {
    if (document.getElementById("tour").hidden) tour.start();
    else document.getElementById("tour-next").click();
  }

  new ResizeObserver(([{ target }]) => root.style.setProperty("--room-dock", `${target.offsetHeight}px`))
    .observe(document.getElementById("tour"));
  document.addEventListener("fullscreenchange", () => document.fullscreenElement ?? leave());
  addEventListener("pointerdown", () => (byKey = false), true);
  addEventListener("keydown", (event) => {
    if (event.key === "Tab") byKey = true;
    if (!isOn() || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = byKey && document.activeElement.matches(CONTROLS); // who came with Tab wants the control's own Space
    const does = { Escape: leave, " ": typing ? null : next }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  }, true);

  return {
    show(seen, view) {
      chosen = view;
      for (const [name, { box }] of Object.entries(choices)) box.value = view[name];
      const isOff = view.switches.heads && !view.switches.heads[view.block][view.head];
      off.textContent = isOff ? "Switch head on" : "Switch head off";
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
