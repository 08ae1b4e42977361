/**
 * The stages of the forward pass as the page shows them, in the order of the page.
 *
 * `make...` builds what a stage needs once; `show...` fills it with numbers. `seen` is what `forward` in vit.js returns,
 * `view` says what the visitor looks at: {token, patch, block, head, switches}.
 */
import {
  NUMBER_HEIGHT, drawAttention, drawBars, drawGrid, drawPatches, drawToken, el, makeBars, mapSize, niceLimit, patchPlace,
} from "./panels.js";

export const PATCH_GAP = 10;
export const byId = (id) => document.getElementById(id);

/** 0.938 -> "94%", and never 0% or 100% for what is not exactly that */
export function percent(part) {
  if (part > 0 && part < 0.005) return "<1%";
  if (part < 1 && part > 0.995) return ">99%";
  return `${Math.round(part * 100)}%`;
}

/** A number with a sign that is as wide as a digit, for columns of numbers */
export function signed(number, digits = 2) {
  return number.toFixed(digits).replace("-", "−");
}

/** How the page calls token t in a sentence */
export function tokenName(t) {
  return t ? `token ${t}` : "the class token";
}

// Answer

/** One row per digit: the digit, a bar, and a percentage. */
export function makeOdds(classNames) {
  byId("odds").replaceChildren(...classNames.map((name) =>
    el("li", {}, el("b", {}, name), el("span", { class: "track" }, el("i")), el("span", { class: "part" }))));
}

/** probabilities: [K], or null if nothing is drawn */
export function showOdds(probabilities) {
  const most = probabilities && Math.max(...probabilities);
  [...byId("odds").children].forEach((row, k) => {
    const part = probabilities ? probabilities[k] : 0;
    row.querySelector("i").style.width = `${part * 100}%`;
    row.querySelector(".part").textContent = probabilities ? percent(part) : "–";
    row.classList.toggle("best", part > 0 && part === most);
  });
}

// Pixels and patches

export function showPixels(pixels, side) {
  drawGrid(byId("grid"), pixels, side);
  drawGrid(byId("thumb"), pixels, side, false);
}

/** Point at a pixel: its number. */
export function makePixelReader(side, pixelsNow) {
  const grid = byId("grid"), said = byId("pixel-read"), quiet = said.textContent;
  const read = (event) => {
    const box = grid.getBoundingClientRect(), at = (z) => Math.max(0, Math.min(side - 1, Math.floor(z * side)));
    const row = at((event.clientY - box.top) / box.height), col = at((event.clientX - box.left) / box.width);
    said.textContent = `Row ${row + 1}, column ${col + 1}: ${pixelsNow()[row * side + col].toFixed(2)}`;
  };
  grid.addEventListener("pointermove", read);
  grid.addEventListener("pointerdown", read);
  grid.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") said.textContent = quiet; // a finger leaves as soon as it has tapped
  });
}

/** look(t): show token t while the pointer is there, null when it leaves; pick(t): keep it */
export function makePatches(cols, P, look, pick) {
  const cut = byId("cut"), tokenOf = (event) => {
    const box = cut.getBoundingClientRect(), scale = cut.width / box.width;
    for (let n = 0; n < cols * cols; n++) {
      const { x, y, size } = patchPlace(cut, n, cols, PATCH_GAP);
      const inX = (event.clientX - box.left) * scale - x, inY = (event.clientY - box.top) * scale - y;
      if (inX >= 0 && inX < size && inY >= -NUMBER_HEIGHT && inY < size) return n + 1;
    }
    return null;
  };
  follow(cut, tokenOf, look);
  cut.addEventListener("click", (event) => tokenOf(event) !== null && pick(tokenOf(event)));
  const rows = Array.from({ length: P }, () => el("tr", {}, ...Array.from({ length: P }, () => el("td"))));
  byId("patch-numbers").tBodies[0].replaceChildren(...rows);
}

export function showPatches(seen, view) {
  drawPatches(byId("cut"), seen.patches, view.patch, PATCH_GAP);
  const numbers = seen.patches[view.patch], table = byId("patch-numbers");
  table.querySelectorAll("td").forEach((cell, i) => {
    cell.textContent = numbers[i].toFixed(2);
    const dark = numbers[i] > 0.5; // the middle grays are skipped: no text can be read on them
    cell.style.setProperty("--ink", (dark ? 0.2 : 0) + numbers[i] * 0.8);
    cell.classList.toggle("dark", dark);
  });
  const where = seen.order[view.patch] + 1;
  const moved = where === view.patch + 1 ? "" : `, which is number ${where} of the image`;
  table.caption.textContent = `Patch ${view.patch + 1}${moved}`;
}

// Tokens

/** A radio button with a picture for each token */
export function makeTokens(count, look, pick) {
  const list = byId("token-list");
  list.replaceChildren(...Array.from({ length: count }, (_, t) => el("button", {
    type: "button", role: "radio", "data-token": t, "aria-label": t ? `Token ${t}` : "Class token", "aria-checked": "false",
  }, el("canvas", { width: 40, height: 40 }), el("span", { "aria-hidden": "true" }, t ? String(t) : "class"))));
  [...list.children].forEach((button, t) => {
    button.addEventListener("click", () => pick(t));
    follow(button, () => t, look);
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const now = Number(document.activeElement.dataset.token);
    const next = step ? (now + step + count) % count : { Home: 0, End: count - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    pick(next);
    list.children[next].focus();
  });
}

/** picked: the token that stays selected, while view.token may be one that the pointer is over */
export function showTokens(seen, view, picked, positions) {
  [...byId("token-list").children].forEach((button, t) => {
    drawToken(button.firstChild, t ? seen.patches[t - 1] : null);
    button.setAttribute("aria-checked", String(t === picked));
    button.tabIndex = t === picked ? 0 : -1;
    button.classList.toggle("shown", t === view.token);
  });
  const token = seen.tokens[0][view.token], added = view.switches.positions ? positions[view.token] : token.map(() => 0);
  const before = token.map((number, i) => number - added[i]), limit = niceLimit(token, added, before);
  drawBars(byId("embed-bars"), before, limit);
  drawBars(byId("position-bars"), added, limit);
  drawBars(byId("token-bars"), token, limit);
  for (const id of ["embed-bars", "token-bars"]) byId(id).classList.toggle("class", view.token === 0);
  byId("embed-name").textContent = view.token ? "patch embedding" : "learned start";
  byId("token-name").textContent = view.token ? `token ${view.token}` : "class token";
  byId("token-scale").textContent = `±${limit}`;
}

// Blocks

/** toggle(l, h): switch a head off or on */
export function makeBlocks(config, toggle) {
  const size = mapSize(Math.sqrt(config.num_patches));
  byId("block-list").replaceChildren(...Array.from({ length: config.depth }, (_, l) => {
    const heads = Array.from({ length: config.num_heads }, (_, h) => {
      const map = el("canvas", { ...size, "aria-hidden": "true" });
      const button = el("button", { type: "button", class: "head", "data-head": `${l},${h}`, "aria-pressed": "true" },
        el("span", { class: "title" }, `head ${h + 1}`), map, el("small"));
      button.addEventListener("click", () => toggle(l, h));
      return button;
    });
    const row = (name, kind) => el("div", { class: "row" }, el("span", { class: "name" }, name), makeBars(kind));
    return el("div", { class: "block", role: "group", "aria-labelledby": `block-${l}` },
      el("h3", { id: `block-${l}` }, `Block ${l + 1}`), el("div", { class: "heads" }, ...heads),
      el("div", { class: "stream" },
        row("goes in", "token"), row("+ added", "added"), row("= comes out", "token")));
  }));
}

export function showBlocks(seen, view) {
  const { token, switches } = view, stream = seen.tokens.map((tokens) => tokens[token]);
  const added = seen.attention.map((_, l) => stream[l + 1].map((number, i) => number - stream[l][i]));
  const limit = niceLimit(...stream, ...added);
  byId("maps-name").textContent = tokenName(token);
  [...byId("block-list").children].forEach((block, l) => {
    block.querySelectorAll(".head").forEach((button, h) => {
      const on = !switches.heads || switches.heads[l][h];
      drawAttention(button.querySelector("canvas"), seen.patches, seen.attention[l][h][token], token);
      button.setAttribute("aria-pressed", String(on));
      button.querySelector("small").textContent = on ? "" : "off";
    });
    [stream[l], added[l], stream[l + 1]].forEach((numbers, i) => {
      const bars = block.querySelectorAll(".bars")[i];
      drawBars(bars, numbers, limit);
      bars.classList.toggle("class", token === 0 && i !== 1);
    });
  });
  byId("stream-scale").textContent = `±${limit}`;
}

/** What a screen reader says of each head: too long to change with every point of a stroke */
export function nameHeads(seen, view) {
  document.querySelectorAll(".head").forEach((button) => {
    const [l, h] = button.dataset.head.split(",").map(Number), weights = Array.from(seen.attention[l][h][view.token]);
    const most = weights.indexOf(Math.max(...weights)), name = tokenName(view.token);
    button.setAttribute("aria-label", `Head ${h + 1} of block ${l + 1}. ` +
      `${name[0].toUpperCase()}${name.slice(1)} attends most to ${most === view.token ? "itself" : tokenName(most)}, ` +
      percent(weights[most]));
  });
}

// Logits, probabilities, and the lens

export function makeResult(config) {
  byId("logits").tBodies[0].replaceChildren(...config.class_names.map((name) => el("tr", {},
    el("th", { scope: "row" }, name),
    el("td", {}, el("span", { class: "logit" }, el("span", { class: "both" }, el("i")), el("span", { class: "part" }))),
    el("td", {}, el("span", { class: "weight" }, el("span", { class: "track" }, el("i")), el("span", { class: "part" }))))));
  const when = (l) => (l ? `after block ${l}` : "before block 1");
  byId("lens").tBodies[0].replaceChildren(...Array.from({ length: config.depth + 1 }, (_, l) => el("tr", {},
    el("th", { scope: "row" }, when(l)),
    el("td", {}, el("span", { class: "columns", "aria-hidden": "true" }, ...config.class_names.map((name) =>
      el("span", {}, el("i"), el("small", {}, name))))),
    el("td"))));
}

export function showResult(seen, classNames) {
  const limit = niceLimit(seen.logits), best = seen.probabilities.indexOf(Math.max(...seen.probabilities));
  [...byId("logits").tBodies[0].rows].forEach((row, k) => {
    const logit = seen.logits[k], [bar, track] = row.querySelectorAll("i"), [score, part] = row.querySelectorAll(".part");
    bar.style.width = `${(Math.abs(logit) / limit) * 50}%`;
    bar.style.left = logit < 0 ? `${50 - (-logit / limit) * 50}%` : "50%";
    score.textContent = signed(logit);
    track.style.width = `${seen.probabilities[k] * 100}%`;
    part.textContent = percent(seen.probabilities[k]);
    row.classList.toggle("best", k === best);
  });
  [...byId("lens").tBodies[0].rows].forEach((row, l) => {
    const parts = seen.lens[l], most = Math.max(...parts), top = parts.indexOf(most);
    row.querySelectorAll(".columns > span").forEach((column, k) => {
      column.firstChild.style.height = `${parts[k] * 100}%`;
      column.classList.toggle("best", k === top && most - Math.min(...parts) > 1e-6);
    });
    const even = most - Math.min(...parts) < 1e-6;
    row.cells[2].textContent = even ? "all equal" : `${classNames[top]}, ${percent(most)}`;
  });
}

/** look(t) while the pointer is over token t of an element, look(null) when it leaves; touch does not hover. */
export function follow(element, tokenOf, look) {
  let token = null;
  const move = (next) => {
    if (next !== token) look(token = next);
  };
  element.addEventListener("pointermove", (event) => event.pointerType !== "touch" && move(tokenOf(event)));
  element.addEventListener("pointerleave", () => move(null));
}
