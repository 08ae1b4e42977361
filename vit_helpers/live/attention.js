/**
 * Step 4 of the page, one attention head: the score of one key as a sum of products, and the head's output as the sum of
 * the values, each as thick as its weight.
 *
 * `view` says what is looked at: {token, key, block, head, switches}, where a `key` of null is the one with the most weight.
 */
import { drawBars, drawLanes, drawSteps, drawToken, el, niceLimit } from "./panels.js";
import { byId, follow, percent, signed, tokenName } from "./stages.js";

/**
 * What a head computes for one query, and how the score of one key comes about.
 * @returns {object} key; q, k, products, output [d] (zeros if the head is off); scores, weights [T]; sum (q · k), score (the
 *   sum after the division), weight, total (the sum of all weights); sums [T][d + 1] (of the first 0 .. d products);
 *   keys, values [T][d]
 */
export function openHead(seen, view) {
  const { token, block: l, head: h, switches } = view, [queries, keys, values] = [seen.q, seen.k, seen.v].map((all) => all[l][h]);
  const q = queries[token], weights = seen.attention[l][h][token], d = q.length, on = !switches.heads || switches.heads[l][h];
  const sums = keys.map((row) => row.reduce((all, number, i) => [...all, all[i] + number * q[i]], [0]));
  const scores = sums.map((all) => all[d] * (switches.scaling ? 1 / Math.sqrt(d) : 1));
  const output = Array.from(q, (_, i) => (on ? values.reduce((sum, row, t) => sum + weights[t] * row[i], 0) : 0));
  const key = view.key ?? weights.indexOf(Math.max(...weights)), k = keys[key];
  return {
    key, q, k, products: Array.from(q, (number, i) => number * k[i]), output, scores, weights, sum: sums[key][d],
    score: scores[key], weight: weights[key], total: weights.reduce((sum, weight) => sum + weight, 0), sums, keys, values,
  };
}

let opened = null; // what is shown

/**
 * choose(block, head), pick(token), pickKey(key or null): keep it; lookAtKey(key): show it while the pointer is there
 */
export function makeHead(count, config, { choose, pick, pickKey, lookAtKey }) {
  const body = byId("scores").tBodies[0];
  body.replaceChildren(...Array.from({ length: count }, (_, t) => el("tr", {},
    el("th", { scope: "row" }, t ? String(t) : "class"), el("td", { class: "number" }), el("td", { class: "part" }),
    el("td", {}, el("canvas", { width: 20, height: 20, "aria-hidden": "true" })))));
  const ribbons = el("svg", { class: "ribbons", viewBox: `0 0 100 ${count}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  ribbons.append(...Array.from({ length: count }, (_, t) => el("path", { "data-key": t })));
  const lanes = el("canvas", { class: "lanes", width: 20 * config.head_dim, height: 24 * count, "aria-hidden": "true" });
  const over = { rowspan: count, class: "over" };
  body.rows[0].append(el("td", over, ribbons), el("td", over, lanes, el("span", { class: "whole", hidden: "" }, "100%")));
  makeChoices(count, config, { choose, pick, pickKey });
  follow(body, keyUnder, lookAtKey);
  body.addEventListener("click", (event) => keyUnder(event) !== null && pickKey(keyUnder(event)));
  readProducts();
}

function makeChoices(count, config, { choose, pick, pickKey }) {
  const numbered = (n) => Array.from({ length: n }, (_, i) => el("option", { value: i }, String(i + 1)));
  const tokens = () => Array.from({ length: count }, (_, t) => el("option", { value: t }, t ? String(t) : "class"));
  byId("pick-block").append(...numbered(config.depth));
  byId("pick-head").append(...numbered(config.num_heads));
  byId("pick-token").append(...tokens());
  byId("pick-key").append(el("option", { value: "" }, "most weight"), ...tokens());
  byId("pick-token").addEventListener("change", () => pick(Number(byId("pick-token").value)));
  byId("pick-key").addEventListener("change", ({ target: { value } }) => pickKey(value === "" ? null : Number(value)));
  const chosen = () => choose(Number(byId("pick-block").value), Number(byId("pick-head").value));
  for (const id of ["pick-block", "pick-head"]) byId(id).addEventListener("change", chosen);
}

/** The key whose row, ribbon or lane is under the pointer, or null */
function keyUnder({ target, clientY }) {
  if (target.dataset.key) return Number(target.dataset.key);
  const cell = target.closest("td, th");
  if (!cell?.classList.contains("over")) return cell ? cell.parentNode.rowIndex - 1 : null;
  if (!cell.querySelector(".lanes")) return null;
  const box = cell.getBoundingClientRect(), at = ((clientY - box.top) / box.height) * Math.max(1, opened.total);
  let end = 0;
  const lane = Array.from(opened.weights).findIndex((weight) => at < (end += weight));
  return lane < 0 ? null : lane;
}

/** Point at a product: its numbers. */
function readProducts() {
  const place = byId("product-steps"), said = byId("product-read"), quiet = said.textContent;
  const read = ({ clientX }) => {
    const box = place.getBoundingClientRect(), d = opened.q.length;
    const i = Math.max(0, Math.min(d - 1, Math.floor(((clientX - box.left) / box.width) * d)));
    const [q, k, product] = [opened.q, opened.k, opened.products].map((numbers) => signed(numbers[i]));
    said.textContent = `Number ${i + 1}: ${q} × ${k} = ${product}`;
  };
  place.addEventListener("pointermove", read);
  place.addEventListener("pointerdown", read);
  place.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") said.textContent = quiet;
  });
}

export function showHead(seen, view) {
  opened = openHead(seen, view);
  const { token, block: l, head: h, switches } = view, off = Boolean(switches.heads && !switches.heads[l][h]);
  showFit(token, switches);
  showWeights(seen.patches, token);
  const limit = niceLimit(opened.output);
  drawSteps(byId("output-bars"), opened.output.map((number) => [0, number]), -limit, limit);
  byId("output-scale").textContent = off ? "0" : `±${limit}`;
  for (const [name, value] of Object.entries({ token, block: l, head: h, key: view.keptKey ?? "" })) byId(`pick-${name}`).value = value;
  byId("scores").classList.toggle("off", off);
  for (const formula of document.querySelectorAll("#head-figure .formula")) formula.classList.toggle("unscaled", !switches.scaling);
  showHeadNote(switches, off);
  if (byId("exact").open) showExact(opened);
}

/** Why the key fits: query and key above each other, below them the products, which add up (on one scale for all keys) */
function showFit(token, { softmaxAxis }) {
  const { key, q, k, sums, sum, score, weight, keys } = opened, low = Math.min(...sums.flat()), high = Math.max(...sums.flat());
  drawBars(byId("query-bars"), q, niceLimit(q));
  drawBars(byId("key-bars"), k, niceLimit(...keys));
  drawSteps(byId("product-steps"), Array.from(q, (_, i) => [sums[key][i], sums[key][i + 1]]), low, high, 1.2);
  drawSteps(byId("sum-step"), [[0, sum]], low, high);
  drawSteps(byId("score-step"), [[0, score]], low, high);
  byId("weight-step").style.height = `${weight * 100}%`;
  byId("sum-read").textContent = signed(sum);
  byId("score-read").textContent = signed(score);
  byId("weight-read").textContent = percent(weight);
  byId("softmax-name").textContent = softmaxAxis === "queries" ? "softmax over queries" : "softmax";
  byId("query-of").textContent = `of ${tokenName(token)}`;
  byId("key-of").textContent = `of ${key === token ? "the same token" : tokenName(key)}`;
}

/** A row for each key, a ribbon for its weight, and its value as thick as the weight */
function showWeights(patches, token) {
  const { key, scores, weights, total, values } = opened, most = Math.max(...weights), whole = Math.max(1, total);
  [...byId("scores").tBodies[0].rows].forEach((row, t) => {
    drawToken(row.querySelector("canvas"), t ? patches[t - 1] : null);
    row.cells[1].textContent = signed(scores[t]);
    row.cells[2].textContent = percent(weights[t]);
    row.classList.toggle("best", weights[t] === most);
    row.classList.toggle("query", t === token);
    row.classList.toggle("chosen", t === key);
  });
  const count = weights.length;
  let end = 0;
  document.querySelectorAll("#scores .ribbons path").forEach((path, t) => {
    const [from, to] = [end, (end += (weights[t] / whole) * count)], left = t + 0.5, half = weights[t] * 0.5;
    path.setAttribute("d", ribbonPath(left - half, left + half, from, to));
    path.classList.toggle("chosen", t === key);
  });
  drawLanes(document.querySelector("#scores .lanes"), values, weights, niceLimit(...values), whole, key);
  const mark = document.querySelector("#scores .whole");
  mark.style.top = `${100 / whole}%`;
  mark.hidden = whole < 1.005;
  byId("weight-sum").textContent = `${Math.round(total * 100)}%`;
}

/** From a row's right edge to a lane's left one: as high as the weight at both ends, in units of a row and of the lanes */
function ribbonPath(top, bottom, laneTop, laneBottom) {
  const [a, b, c, d] = [top, bottom, laneTop, laneBottom].map((y) => y.toFixed(4));
  return `M0 ${a}C50 ${a} 50 ${c} 100 ${c}V${d}C50 ${d} 50 ${b} 0 ${b}Z`;
}

function showHeadNote(switches, off) {
  const notes = [
    switches.softmaxAxis === "queries" && "The softmax ran over the queries, so the weights of a row need not sum to 100%.",
    !switches.scaling && "The scores are not divided, so they are too large and the softmax is too sharp.",
    off && "This head is switched off, so its output is replaced by zeros.",
  ].filter(Boolean);
  byId("scores-note").textContent = notes.join(" ");
  byId("scores-note").hidden = !notes.length;
}

function showExact({ key, q, k, products, values, output }) {
  const vectors = { q, k, "q × k": products, v: values[key], output };
  const line = ([name, numbers]) => `${name} = [${Array.from(numbers, (number) => signed(number, 3)).join(", ")}]`;
  byId("exact-numbers").textContent = Object.entries(vectors).map(line).join("\n\n");
}
