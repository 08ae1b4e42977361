/** The strip that stays in view: the whole pass as one picture, each stage of which leads to its section of the page. */
import { PASS_SIZES, addedByHeads, drawPass, fitted, hitPass, layoutPass, scaled } from "./pass.js";
import { el } from "./panels.js";
import { percent, tokenName } from "./stages.js";

const GOES_TO = { ink: "pixels", patches: "patches", tokens: "tokens", answer: "result" }; // and block l to #block-<l - 1>

/** What each bug breaks, and how the stage is then called */
const BROKEN = [
  { on: ({ positions }) => !positions, stages: /^tokens/, says: "no position" },
  { on: ({ shufflePatches }) => shufflePatches, stages: /^patches/, says: "shuffled" },
  { on: ({ bareReshape }) => bareReshape, stages: /^patches/, says: "reshaped" },
  { on: ({ scaling }) => !scaling, stages: /^block/, says: "not scaled" },
  { on: ({ softmaxAxis }) => softmaxAxis === "queries", stages: /^block/, says: "wrong axis" },
  { on: ({ untrained }) => untrained, stages: /^(tokens|block|answer)/, says: "untrained" },
];

/** Which bugs break a stage, in words. @returns {string[]} */
export function brokenBy(stage, switches) {
  return BROKEN.filter(({ on, stages }) => on(switches) && stages.test(stage)).map(({ says }) => says);
}

const isRoom = () => document.documentElement.classList.contains("classroom");

/**
 * @param {object} config of the model
 * @param {object} does select(changes) and point(token), what a pointer may do; ink: the canvas that is drawn on
 * @returns {{show: function(object, object, object): void}} show(seen, view, weights)
 */
export function makeStrip(config, { ink, select, point }) {
  const strip = document.getElementById("strip"), canvas = strip.querySelector("canvas"), list = strip.querySelector("ol");
  const context = canvas.getContext("2d"), phone = matchMedia("(max-width: 959px)");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let colors = readColors(), at = null, latest = null, shown = null, waiting = false, before = 0;

  function sizeNow(length) {
    if (!isRoom()) return fitted(PASS_SIZES[phone.matches ? "column" : "strip"], length, config);
    return scaled(PASS_SIZES.room, parseFloat(getComputedStyle(document.documentElement).fontSize) / PASS_SIZES.room.font);
  }

  function place() {
    const { width, height } = canvas.getBoundingClientRect(), sharp = Math.min(3, devicePixelRatio || 1);
    if (!width || !height) return (at = null);
    Object.assign(canvas, { width: Math.round(width * sharp), height: Math.round(height * sharp) });
    context.setTransform(canvas.width / width, 0, 0, canvas.height / height, 0, 0);
    const down = phone.matches && !isRoom(), size = sizeNow(down ? height : width);
    const room = down ? { length: height, breadth: width } : { length: width, breadth: height };
    if (isRoom()) room.paper = paperBeside();
    at = layoutPass(room, size, config);
    placeLinks();
    return at;
  }

  /** Where the drawing area lies, seen from the picture */
  function paperBeside() {
    const { top, height } = ink.getBoundingClientRect();
    return { v: top + height / 2 - canvas.getBoundingClientRect().top, size: height * 0.94 };
  }

  function placeLinks() {
    const links = new Map([...list.children].map((item) => [item.dataset.stage, item]));
    for (const [name, item] of links) item.hidden = !at.stages.some((stage) => stage.name === name);
    for (const { name, u, length } of at.stages) {
      const { style } = links.get(name), [begin, extent] = [`${u}px`, `${length}px`];
      Object.assign(style, at.across ? { top: begin, height: extent, left: "", width: "" }
        : { left: begin, width: extent, top: "", height: "" });
    }
  }

  function draw(now) {
    waiting = false;
    if (!latest || !(at ?? place())) return;
    const { seen, view, widths } = latest, part = 1 - Math.exp(-Math.min(50, now - before) / GLIDE);
    const near = !shown || calm.matches;
    shown = near ? widths : glided(shown, widths, part);
    before = now;
    drawPass(context, at, seen, { ...view, ...shown }, colors);
    if (shown !== widths) drawSoon();
  }

  function drawSoon() {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  function show(seen, view, { weights, empty }) {
    const even = seen.confidence - Math.min(...seen.probabilities) < 1e-6, best = even ? null : seen.digit;
    const widths = {
      weights: seen.attention.map((heads) => heads.map((rows) => rows[view.token])),
      added: addedByHeads(seen, view.token, weights.blocks), probabilities: seen.probabilities, lens: seen.lens,
    };
    latest = { seen, widths, view: { ...view, ink, empty, best, names: config.class_names, percent } };
    nameStages(list, view.switches);
    drawSoon();
  }

  const under = (event) => {
    if (!at) return {};
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return hitPass(at, at.across ? { u: y, v: x } : { u: x, v: y }, config.num_tokens);
  };
  strip.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") point(under(event).token ?? null);
  });
  strip.addEventListener("pointerleave", () => point(null));
  strip.addEventListener("click", (event) => {
    if (event.detail === 0) return; // a key: the link alone
    const { token, block, head } = under(event);
    if (token !== undefined) select({ token, hovered: null });
    if (head !== undefined) select({ block, head });
    const link = event.target.closest("a");
    if (!link || head === undefined) return;
    event.preventDefault(); // a head leads to the section that shows one head
    document.getElementById("attention").scrollIntoView();
  });

  makeStages(list, config);
  followScrolling(list, () => latest?.view.block ?? 0);
  const again = () => {
    colors = readColors();
    at = null;
    drawSoon();
  };
  new ResizeObserver(again).observe(canvas);
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) matchMedia(query).onchange = again;
  new MutationObserver(() => markAsked(list)).observe(document.getElementById("tour-title"), { childList: true });
  return { show, redraw: again };
}

const GLIDE = 70; // milliseconds in which ribbons and bars come about two thirds nearer to their width

/** Numbers on their way to others, which are returned themselves once all are near.  part: of the way that is left */
function glided(from, to, part) {
  let far = 0;
  const go = (one, other) => {
    if (typeof other !== "number") {
      const keys = Array.isArray(other) || ArrayBuffer.isView(other) ? null : Object.keys(other);
      return keys ? Object.fromEntries(keys.map((key) => [key, go(one[key], other[key])]))
        : Array.from(other, (value, i) => go(one[i], value));
    }
    far = Math.max(far, Math.abs(other - one));
    return one + (other - one) * part;
  };
  const next = go(from, to);
  return far < 0.004 ? to : next;
}

/** A link for every stage; the picture lies over them and lets the pointer through */
function makeStages(list, { depth }) {
  const blocks = Array.from({ length: depth }, (_, l) => `block ${l + 1}`);
  list.replaceChildren(...["ink", "patches", "tokens", ...blocks, "answer"].map((name, i) =>
    el("li", { "data-stage": name }, el("a", { href: `#${GOES_TO[name] ?? `block-${i - 3}`}` }, el("span", {}, name)))));
}

/** Names of the stages, and amber for those that a bug breaks */
function nameStages(list, switches) {
  for (const item of list.children) {
    const broken = brokenBy(item.dataset.stage, switches), label = item.querySelector("span");
    const text = broken.length > 1 ? `${broken.length} bugs` : broken[0] ?? item.dataset.stage, all = broken.join(", ");
    if (label.textContent === text && item.firstChild.title === all) continue;
    label.textContent = text;
    item.classList.toggle("broken", broken.length > 0);
    item.firstChild.setAttribute("aria-label", all ? `${item.dataset.stage}: ${all}` : item.dataset.stage);
    item.firstChild.title = all;
  }
}

/** Say which stage is the one that is read.  block(): the one that the section of a single head shows */
function followScrolling(list, block) {
  const places = ["pixels", "patches", "tokens", "attention", ...list.querySelectorAll("[href^='#block']"), "result", "bugs"]
    .map((place) => (place.hash ?? `#${place}`).slice(1));
  const stageOf = (id) => (id === "attention" ? `block-${block()}` : id);
  const mark = () => {
    const passed = places.filter((id) => document.getElementById(id).getBoundingClientRect().top < innerHeight * 0.35);
    for (const item of list.children) {
      const here = item.firstChild.hash === `#${stageOf(passed.at(-1))}`;
      if (here) item.firstChild.setAttribute("aria-current", "location");
      else item.firstChild.removeAttribute("aria-current");
    }
  };
  let waiting = false;
  addEventListener("scroll", () => {
    if (!waiting) requestAnimationFrame(() => (waiting = false, mark()));
    waiting = true;
  }, { passive: true });
}

/** Frame the stage that the tour asks about. */
function markAsked(list) {
  const asked = document.querySelector("main .in-focus")?.id;
  for (const item of list.children) {
    const section = GOES_TO[item.dataset.stage] ?? "blocks";
    item.classList.toggle("asked", section === asked || (asked === "attention" && item.dataset.stage === "block 1"));
  }
}

/** The colors of the page, as numbers for the stripes and as names for everything else */
function readColors() {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["class", "patch", "value", "attention", "query", "text", "soft", "line", "track", "paper"];
  const light = !matchMedia("(prefers-color-scheme: dark)").matches;
  return {
    ...Object.fromEntries(names.map((name) => [name, of(name)])), wine: "rgba(136, 34, 85, 0.92)", ink: "#222",
    paperEnds: [light ? [255, 253, 247] : [241, 238, 230], [34, 34, 34]],
    classEnds: [light ? [253, 236, 224] : [52, 33, 24], [213, 94, 0]],
    patchEnds: [light ? [235, 245, 252] : [28, 40, 50], [62, 142, 196]],
  };
}

/** What the chosen head does, in a sentence */
export function headInWords(seen, { token, block, head, switches }) {
  const weights = Array.from(seen.attention[block][head][token]), most = weights.indexOf(Math.max(...weights));
  const off = switches.heads && !switches.heads[block][head];
  const whom = most === token ? "itself" : tokenName(most), who = tokenName(token);
  return `Block ${block + 1}, head ${head + 1}${off ? " (off)" : ""}: ${who} attends most to ${whom}, ` +
    `${percent(weights[most])}`;
}
