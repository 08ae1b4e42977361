/** The second part of the page: a patch of a photo, and which others are similar to it before the blocks and after them. */
import { buttons, make } from "./make.js";
import { mostSimilar, similarTo, unpackTokens } from "./photo.js";
import { cosineScale, drawCells, framePatch, framedPhoto, letPick, placeAround, signedColor } from "./picker.js";

const WHEN = { before: "before the blocks", after: "after the blocks" };
const NEEDED = "The patches of photos cannot be compared here, because this browser does not have DecompressionStream, which " +
  "unpacks their numbers. Chrome and Edge have it since version 80, Firefox since 113 and Safari since 16.4. Everything else " +
  "on this page works.";

/** Build the part from what `photos_data` of photos.py stored in the page, or say what the browser needs for it. */
export function makePhotos() {
  if ("DecompressionStream" in window) return buildPhotos();
  document.getElementById("photo-said").textContent = NEEDED;
  for (const part of document.querySelectorAll("#photo-choice, #photo-maps, #photos .note")) part.hidden = true;
}

function buildPhotos() {
  const data = JSON.parse(document.getElementById("photo-data").textContent), { photos, grid } = data, [rows, columns] = grid;
  const parts = document.getElementById("components-on"), said = document.getElementById("photo-said");
  const shown = [...document.querySelectorAll("#components input")]; // a box for each component
  const photo = framedPhoto(grid, { tabIndex: 0, role: "application", "aria-label": "Photo. The arrow keys move the frame." });
  const maps = Object.fromEntries(Object.keys(WHEN).map((stage) => [stage, framedPhoto(grid, { role: "img" })]));
  for (const stage of Object.keys(WHEN)) {
    for (const layers of [photo, maps[stage]]) layers.lastChild.before(make("div", { className: `found ${stage}` }));
  }
  const titles = Object.fromEntries(Object.keys(WHEN).map((stage) => [stage, make("figcaption")]));
  const scale = cosineScale(data.colors);
  const directions = make("p", {}, "Red, green and blue: the three directions in which the tokens differ most");
  const unpacked = []; // a promise for each photo that was shown: {before, after}, as `unpackTokens` returns them
  const chosen = { photo: 0, patch: data.patch, looked: null }; // looked: the patch under a mouse that only points

  const choose = (changes) => (Object.assign(chosen, changes), show());
  const picture = (i) => make("img", { alt: "", loading: "lazy", src: photos[i].picture });
  const choice = buttons(photos.length, photos.length, (i) => [photos[i].name, picture(i)], (i) => choose({ photo: i }));

  async function show() {
    const { photo: n } = chosen, tokens = await (unpacked[n] ??= unpackPhoto(photos[n], data.step, rows * columns));
    if (n !== chosen.photo) return; // another photo was chosen meanwhile
    const patch = chosen.looked ?? chosen.patch, found = [];
    choice.mark(n);
    framePatch(photo, photos[n].picture, patch, data);
    for (const [stage, when] of Object.entries(WHEN)) {
      const number = patch[0] * columns + patch[1], cosines = similarTo(tokens[stage], number), best = mostSimilar(cosines, number);
      const place = [Math.floor(best / columns), best % columns], circle = stage === "before" ? " (dashed)" : "";
      found.push(`${when} (${place.join(", ")}), cosine ${cosines[best].toFixed(2)}${circle}`);
      for (const circled of document.querySelectorAll(`#photo-maps .found.${stage}`)) placeAround(circled, place, data, 9);
      framePatch(maps[stage], photos[n].picture, patch, data);
      if (parts.checked) drawComponents(maps[stage], tokens[stage].components, shown.map((box) => box.checked));
      else drawCells(maps[stage], cosines, signedColor(data.colors));
    }
    nameParts();
    said.textContent = `Patch (${patch.join(", ")}). Most similar, in circles: ${found.join("; ")}.`;
  }

  function nameParts() {
    document.getElementById("components").hidden = !parts.checked;
    scale.hidden = parts.checked;
    directions.hidden = !parts.checked;
    for (const [stage, when] of Object.entries(WHEN)) {
      titles[stage].textContent = `${parts.checked ? "Components" : "Similar"} ${when}`;
      maps[stage].ariaLabel = titles[stage].textContent;
    }
  }

  for (const layers of [photo, ...Object.values(maps)]) {
    letPick(layers, grid, () => chosen.patch, (patch) => choose({ patch, looked: null }), (looked) => choose({ looked }));
  }
  for (const box of [parts, ...shown]) box.addEventListener("change", show);
  document.getElementById("photo-choice").prepend(choice.place);
  choice.place.setAttribute("aria-label", "Photo");
  document.getElementById("photo-maps").append(
    make("figure", {}, make("figcaption", {}, "Photo"), photo),
    ...Object.keys(WHEN).map((stage) => make("figure", {}, titles[stage], maps[stage])),
    make("div", { className: "legend" }, scale, directions));
  nameParts();
  whenNear(document.getElementById("photos"), show);
}

/** Do something once an element is less than two screens away: the digit above need not wait for it. */
function whenNear(element, act) {
  const near = new IntersectionObserver((changes) => {
    if (!changes.some((change) => change.isIntersecting)) return;
    near.disconnect();
    act();
  }, { rootMargin: "200%" });
  near.observe(element);
}

/** The tokens of a photo: {before, after} */
async function unpackPhoto(photo, step, n) {
  const tokens = await Promise.all(Object.keys(WHEN).map((stage) => unpackTokens(photo[stage], step, n)));
  return Object.fromEntries(Object.keys(WHEN).map((stage, i) => [stage, tokens[i]]));
}

/** Three components as red, green and blue, from the smallest 2% to the largest, as in `as_colors`; black for one that is off */
function drawComponents(map, components, on) {
  const ranges = components.map((values) => {
    const sorted = Array.from(values).sort((a, b) => a - b), last = sorted.length - 1;
    return [sorted[Math.round(0.02 * last)], sorted[Math.round(0.98 * last)]];
  });
  const color = (j, i) => (on[j] ? 255 * (components[j][i] - ranges[j][0]) / (ranges[j][1] - ranges[j][0]) : 0);
  drawCells(map, components[0], (_, i) => [color(0, i), color(1, i), color(2, i), 255]);
}
