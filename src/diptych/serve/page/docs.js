// The documentation of the HTTP API, made from /openapi.json: routes, parameters, responses, schemas, and forms to try them.

import { byId, make } from "./element.js";
import { fieldTable, schemaTable, typeOf, withCode } from "./docs_schema.js";
import { tryForm } from "./docs_try.js";

/** @typedef {import("./docs_schema.js").Schema} Schema */

/** @param {string} method @param {string} path */
function anchorOf(method, path) {
  return `${method}-${path.replace(/\W+/g, "-").replace(/^-|-$/g, "")}`;
}

/** @param {string} method @param {string} path @param {Schema} about */
function operation(method, path, about) {
  /** @type {import("./docs_try.js").Parameter[]} */
  const parameters = [...(about.parameters ?? [])].sort((one, other) => Number(other.required) - Number(one.required));
  const bodies = about.requestBody?.content ?? {};
  const heading = make("h2", {}, make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), " ", make("code", { textContent: path }));
  const parts = [make("p", {}, ...withCode(about.description ?? about.summary ?? ""))];
  const fields = parameters.map((/** @type {any} */ part) => ({
    name: part.name,
    required: Boolean(part.required),
    schema: { description: part.description, ...part.schema },
    place: part.in === "path" ? "path" : undefined,
  }));
  if (fields.length) parts.push(make("h3", { textContent: "Parameters" }), fieldTable(fields));
  for (const [type, { schema }] of Object.entries(bodies)) {
    parts.push(make("h3", {}, "Body, ", make("code", { textContent: type })), schemaTable(schema));
  }
  parts.push(make("h3", { textContent: "Responses" }), responses(about.responses ?? {}));
  const form = tryForm({ method: method.toUpperCase(), path, parameters, bodies });
  const tried = make("details", {}, make("summary", { textContent: "Try it" }), form);
  return make("section", { id: anchorOf(method, path), className: "operation" }, heading, ...parts, tried);
}

/** @param {Record<string, any>} answers by status */
function responses(answers) {
  const rows = Object.entries(answers).map(([status, { description, content = {} }]) => {
    const kinds = Object.entries(content).flatMap(([type, { schema }]) => [make("code", {}, `${type}: `, ...typeOf(schema ?? {})), make("br")]);
    return make("tr", {}, make("th", { scope: "row", textContent: status }), make("td", { textContent: description }), make("td", {}, ...kinds));
  });
  return make("table", {}, make("tbody", {}, ...rows));
}

/** @param {string} name @param {Schema} about */
function schema(name, about) {
  const heading = make("h2", {}, make("code", { textContent: name }));
  return make("section", { id: `schema-${name}`, className: "operation" }, heading, make("p", {}, ...withCode(about.description ?? "")), schemaTable(about));
}

/** @param {string} href @param {...(string | Node)} text */
function entry(href, ...text) {
  return make("li", {}, make("a", { href }, ...text));
}

async function show() {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`the service answered with ${response.status}`);
  const document_ = await response.json();
  const operations = Object.entries(document_.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => ({ method, path, about })),
  );
  const schemas = Object.entries(document_.components?.schemas ?? {});
  const routes = operations.map(({ method, path }) =>
    entry(`#${anchorOf(method, path)}`, make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), " ", path),
  );
  byId("contents", HTMLElement).replaceChildren(
    make("h2", { textContent: "Routes" }),
    make("ul", {}, ...routes),
    make("h2", { textContent: "Schemas" }),
    make("ul", {}, ...schemas.map(([name]) => entry(`#schema-${name}`, name))),
  );
  const lead = `${document_.info.title} ${document_.info.version}. ${document_.info.description} Every error is {"error": "one sentence"}.`;
  byId("routes", HTMLElement).replaceChildren(
    make("p", { textContent: lead }),
    ...operations.map(({ method, path, about }) => operation(method, path, about)),
    ...schemas.map(([name, about]) => schema(name, about)),
  );
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  target?.scrollIntoView(); // the browser looked for it before it was there
}

show().catch((reason) => {
  byId("problem", HTMLElement).textContent = `The documentation could not be loaded: ${reason.message}`;
});
