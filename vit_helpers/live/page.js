/** The page: what a visitor draws goes through the model, and every stage shows the numbers of that forward pass. */
import { makeHead, showHead } from "./attention.js";
import { makeClassroom } from "./classroom.js";
import { makeDemo } from "./demo.js";
import { EmptyInkError, boundingBox, reduceInk } from "./ink.js";
import { makeMarks, showMarks } from "./marks.js";
import { drawCropped } from "./panels.js";
import { SAMPLES, makePen } from "./pen.js";
import { makePhotos } from "./photos.js";
import { makeSnapshots } from "./snapshot.js";
import {
  makeBlocks, makeOdds, makePatches, makePixelReader, makeResult, makeTokens, nameHeads, percent, showBlocks,
  showOdds, showPatches, showPixels, showResult, showTokens,
} from "./stages.js";
import { model, vit } from "./start.js";
import { makeStrip } from "./strip.js";
import { makeTour } from "./tour.js";
import { SWITCHES, forward } from "./vit.js";

const BUGS = { // the value of each switch while its bug is on
  positions: false, shufflePatches: true, bareReshape: true, scaling: false, softmaxAxis: "queries", untrained: true,
};
const { config } = vit, cols = Math.sqrt(config.num_patches);
const $ = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const times = []; // milliseconds of the latest forward passes

/**
 * What the page knows.  token: the selected one; hovered: the one under the pointer, which is looked at; pointed: the one
 * that the pointer marks everywhere, and whose score is open; key: whose score stays open (null for the one with the most
 * weight); source: who drew; still: nothing has changed for a moment; seen: the numbers of the forward pass
 */
const state = {
  token: 0, hovered: null, pointed: null, patch: null, block: 0, head: 0, source: "sample", empty: true, box: null, pixels: null,
  seen: null, still: true, sample: 3, key: null,
};

// From the drawing to numbers

let waiting = false;

/** Read the drawing before the next picture, however many points arrived until then. */
function readSoon(source) {
  Object.assign(state, { source, still: false });
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    readDrawing();
  });
}

function readDrawing() {
  $("example").textContent = pen.isExample() ? "what you see is an example" : "";
  const { ink, width, height } = pen.read();
  try {
    state.pixels = reduceInk(ink, width, height, config.image_size);
    state.box = { ...boundingBox(ink, width, height), of: width };
    state.empty = false;
  } catch (error) {
    if (!(error instanceof EmptyInkError)) throw error;
    Object.assign(state, { pixels: new Float32Array(config.image_size ** 2), box: null, empty: true });
  }
  compute();
}

function compute() {
  const begin = performance.now();
  state.seen = forward(model, state.pixels, vit.switches);
  times.push(performance.now() - begin);
  if (times.length > 50) times.shift();
  showAll();
}

// From numbers to the page

/** What the stages show: the token under the pointer, or else the selected one. */
function viewNow() {
  const token = state.hovered ?? state.token;
  const inks = state.seen.patches.map((patch) => patch.reduce((sum, value) => sum + value, 0));
  const patch = token ? token - 1 : state.patch ?? inks.indexOf(Math.max(...inks));
  const { block, head } = state, key = state.pointed ?? state.key;
  return { token, patch, pointed: key, key, keptKey: state.key, block, head, switches: vit.switches };
}

function showAll() {
  drawCropped($("cropped"), $("canvas"), state.box);
  showAnswer();
  showResult(state.seen, config.class_names);
  showView();
}

/** What depends on the token that is looked at */
function showView() {
  const view = viewNow(), weights = view.switches.untrained ? model.untrained : model.weights;
  showPixels(state.pixels, config.image_size);
  showPatches(state.seen, view);
  showTokens(state.seen, view, state.token, weights.token_embed.pos_embed);
  showHead(state.seen, view);
  showBlocks(state.seen, view);
  showMarks(state.seen, view, config);
  strip.show(state.seen, view, { weights, empty: state.empty });
  classroom.show(state.seen, view);
  settle();
  tour.check();
}

/** The answer as a sentence */
function answerOf({ probabilities, digit, confidence }) {
  if (state.empty) return "Nothing drawn yet";
  if (confidence - Math.min(...probabilities) < 1e-6) return `I cannot tell, every digit gets ${percent(confidence)}`;
  const name = config.class_names[digit], read = `I read ${name === "8" ? "an" : "a"} ${name}, ${percent(confidence)}`;
  return confidence < 0.6 ? `${read}, but I am not sure` : read;
}

function showAnswer() {
  $("answer").textContent = answerOf(state.seen);
  showOdds(state.empty ? null : state.seen.probabilities);
  document.body.classList.toggle("empty", state.empty);
}

let settling = 0;

/** Say what is new, once nothing has changed for a moment: a screen reader cannot follow every point of a stroke. */
function settle() {
  clearTimeout(settling);
  settling = setTimeout(() => {
    const sentence = answerOf(state.seen) + (state.empty ? ". The stages below show an empty sheet of paper." : "");
    if ($("said").textContent !== sentence) $("said").textContent = sentence;
    nameHeads(state.seen, viewNow());
    $("pixels-note").hidden = !state.empty;
    const middle = [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
    state.still = true;
    tour.check();
    if (times.length < 10) return; // the first ones are slow, as the browser has not compiled the code yet
    $("speed").textContent = `A forward pass takes ${middle.toFixed(1)} ms here (the median of the latest ${times.length}).`;
  }, 250);
}

function announce(sentence) {
  $("pen-said").textContent = sentence;
}

// What a visitor can do

/** Change what is selected, and show it in every part of the page.  changes: token, hovered, pointed, block, head, key */
function select(changes) {
  if (["token", "block", "head"].some((name) => name in changes)) state.key = null;
  Object.assign(state, changes);
  if (changes.token) state.patch = changes.token - 1;
  if (state.seen) showView();
}

function look(token) {
  if (token !== state.hovered) select({ hovered: token });
}

/** Mark a token everywhere, or none: null. */
function point(token) {
  if (token !== state.pointed) select({ pointed: token });
}

function pick(token) {
  select({ token, hovered: null });
}

/** Show head h of block l in detail. */
function choose(l, h) {
  select({ block: l, head: h });
}

/** Open the score of a key, null for the one with the most weight; the same key again: null */
function pickKey(key) {
  select({ key: key === state.key ? null : key });
}

function toggleHead(l, h) {
  const heads = vit.switches.heads ?? Array.from({ length: config.depth }, () => Array(config.num_heads).fill(true));
  heads[l][h] = !heads[l][h];
  vit.set({ heads: heads.flat().every(Boolean) ? null : heads });
}

/** All heads on, no bug */
function restore() {
  vit.set({ ...SWITCHES });
}

/** n: a digit, or 10 for a scribble */
function drawSample(n) {
  demo.stop();
  state.sample = n;
  pen.show(SAMPLES[n], { slowly: !calm.matches });
}

/** The page follows the switches, whoever sets them: a click, the tour or `window.vit.set`. */
function showSwitches(switches) {
  const changes = [];
  for (const box of document.querySelectorAll("[data-switch]")) {
    box.checked = switches[box.dataset.switch] === BUGS[box.dataset.switch];
    if (box.checked) changes.push(box.parentElement.textContent.trim().toLowerCase());
  }
  const off = switches.heads ? switches.heads.flat().filter((on) => !on).length : 0;
  if (off) changes.push(`${off} ${off === 1 ? "head" : "heads"} off`);
  $("altered-what").textContent = `Changed: ${changes.join(", ")}.`;
  $("altered").hidden = !changes.length;
  if (state.pixels) compute();
}

function makeControls() {
  SAMPLES.slice(0, 10).forEach((_, n) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: n, ariaLabel: `Draw a sample ${n}`, onclick: () => drawSample(n) });
    $("samples").append(button);
  });
  $("scribble").onclick = () => drawSample(10);
  $("clear").onclick = pen.clear;
  $("restore").onclick = () => {
    restore();
    $("canvas").focus({ preventScroll: true }); // the button has just disappeared
  };
  for (const box of document.querySelectorAll("[data-switch]")) {
    const name = box.dataset.switch;
    box.addEventListener("change", () => vit.set({ [name]: box.checked ? BUGS[name] : SWITCHES[name] }));
  }
  $("start-tour").onclick = tour.start;
  $("exact").addEventListener("toggle", showView);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.token && !event.defaultPrevented) pick(0);
  });
}

/** Numbers in the text that belong to the model */
function fillNumbers() {
  const parameters = Object.values(model.shapes).reduce((sum, shape) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const numbers = {
    ...config, parameters: parameters.toLocaleString("en-US"), pixels: config.image_size ** 2, patches: config.num_patches,
    tokens: config.num_tokens, patch_length: config.patch_size ** 2,
  };
  for (const place of document.querySelectorAll("[data-n]")) place.textContent = numbers[place.dataset.n];
}

const pen = makePen($("canvas"), $("cursor"), readSoon, announce);
const snapshots = makeSnapshots({ state, vit, pen, pick, choose, readDrawing });
const strip = makeStrip(config, { ink: $("canvas"), select, point });
const demo = makeDemo({ pen, strokes: SAMPLES[state.sample], read: readDrawing, calm: calm.matches });
const tour = makeTour({ state, vit, model, pick, choose, drawSample, ...snapshots });
const classroom = makeClassroom(config, { select, toggleHead, tour, redraw: strip.redraw });
fillNumbers();
makeOdds(config.class_names);
makePixelReader(config.image_size, () => state.pixels);
makePatches(cols, config.patch_size, look, pick);
makeTokens(config.num_tokens, look, pick);
makeHead(config.num_tokens, config, { choose, pick, pickKey, lookAtKey: point });
makeBlocks(config, toggleHead);
makeResult(config);
makeMarks(config, { point, pick, seen: () => state.seen, switches: () => vit.switches });
makeControls();
makePhotos();
vit.onSet(showSwitches);
showSwitches(vit.switches);
window.stopDemo = demo.stop; // the whole example, now
demo.start();
