/** Make the model of this page from the weights that the page contains, as base64, and call it `window.vit`. */
import { makeApi } from "./api.js";
import { makeVit } from "./vit.js";

/** @returns {ArrayBuffer} the bytes behind a text in base64 */
function decodeBase64(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes.buffer;
}

export const model = makeVit(decodeBase64(document.getElementById("weights").textContent));
export const vit = (window.vit = makeApi(model));
