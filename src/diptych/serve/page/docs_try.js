// A form that sends a request to a route, and shows the request and its response.

import { make } from "./element.js";
import { exampleOf } from "./docs_schema.js";

/** @typedef {import("./docs_schema.js").Schema} Schema */
/** @typedef {{name: string, in: string, required?: boolean, schema: Schema}} Parameter */
/** @typedef {{method: string, path: string, parameters: Parameter[], bodies: Record<string, {schema: Schema}>}} Operation */

const SHOWN = 20_000; // characters of a response

/** @param {Operation} operation */
export function tryForm(operation) {
  const inputs = new Map(operation.parameters.map((parameter) => [parameter, parameterInput(parameter)]));
  const body = bodyInput(operation.bodies);
  const send = make("button", { type: "submit", textContent: "Send" });
  const output = make("div", { className: "response", role: "status" });
  const fields = [...inputs].map(([{ name }, input]) => make("label", { className: "field" }, make("span", { textContent: name }), input));
  const form = make("form", { className: "try" }, ...fields, body?.element, send, output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    output.replaceChildren("Waiting…");
    const url = urlOf(operation, new Map([...inputs].map(([parameter, input]) => [parameter, input.value])));
    try {
      output.replaceChildren(...(await exchange(operation.method, url, body?.read())));
    } catch (reason) {
      output.replaceChildren(make("p", { className: "problem", textContent: `No response: ${reason}` }));
    }
    send.disabled = false;
  });
  return form;
}

/** @param {Parameter} parameter */
function parameterInput({ required, schema }) {
  const value = required ? String(exampleOf(schema) ?? "") : "";
  if (!schema.enum) return make("input", { value, required: Boolean(required), placeholder: String(schema.default ?? "") });
  const choices = required ? schema.enum : ["", ...schema.enum];
  return make("select", {}, ...choices.map((/** @type {string} */ choice) => make("option", { textContent: choice })));
}

// The body: JSON in a text area, or a file; a route that takes several kinds shows the first of them that it can send.
/** @param {Operation["bodies"]} bodies */
function bodyInput(bodies) {
  if (bodies["application/json"]) {
    const value = JSON.stringify(exampleOf(bodies["application/json"].schema), null, 2);
    const area = make("textarea", { value, rows: Math.min(12, value.split("\n").length + 1), spellcheck: false });
    const read = () => ({ body: area.value, type: "application/json" });
    return { element: make("label", { className: "body" }, make("span", { textContent: "JSON" }), area), read };
  }
  if (bodies["application/octet-stream"]) {
    const file = make("input", { type: "file", required: true });
    const read = () => ({ body: file.files?.[0] ?? "", type: "application/octet-stream" });
    return { element: make("label", { className: "field" }, make("span", { textContent: "file" }), file), read };
  }
  return null;
}

/** @param {Operation} operation @param {Map<Parameter, string>} values */
function urlOf(operation, values) {
  let path = operation.path.slice(1); // relative, in case a proxy serves it in a folder
  const query = new URLSearchParams();
  for (const [parameter, value] of values) {
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (value !== "") query.append(parameter.name, value);
  }
  return query.size ? `${path}?${query}` : path;
}

/** @param {string} method @param {string} url @param {{body: string | File, type: string} | undefined} sent */
async function exchange(method, url, sent) {
  const started = performance.now();
  const headers = sent && { "Content-Type": sent.type };
  const response = await fetch(url, { method, headers, body: sent?.body });
  const content = await response.blob();
  const took = Math.round(performance.now() - started);
  const about = `${response.status} ${response.statusText} · ${took} ms · ${content.size.toLocaleString("en")} bytes · ${content.type}`;
  const curl = make("pre", { textContent: curlOf(method, response.url, sent) });
  return [curl, make("p", { className: response.ok ? "quiet" : "problem", textContent: about }), await shown(content)];
}

/** @param {string} method @param {string} url @param {{body: string | File, type: string} | undefined} sent */
function curlOf(method, url, sent) {
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl"];
  if (method !== (sent ? "POST" : "GET")) parts.push("-X", method);
  if (typeof sent?.body === "string") parts.push("-H", quote(`Content-Type: ${sent.type}`), "-d", quote(sent.body));
  else if (sent) parts.push("--data-binary", quote(`@${sent.body.name}`));
  return [...parts, quote(url)].join(" ");
}

/** @param {Blob} content */
async function shown(content) {
  if (content.type.startsWith("image/")) {
    const picture = make("img", { alt: "The response", src: URL.createObjectURL(content) });
    picture.addEventListener("load", () => URL.revokeObjectURL(picture.src));
    return picture;
  }
  let text = content.type.startsWith("application/octet-stream") ? "(bytes)" : await content.text();
  if (content.type.startsWith("application/json")) text = JSON.stringify(JSON.parse(text), null, 2);
  return make("pre", { textContent: text.length > SHOWN ? `${text.slice(0, SHOWN)}\n…` : text, tabIndex: 0 });
}
