// JSON schemas of the OpenAPI document, as text, tables and examples.

import { count, make } from "./element.js";

/** @typedef {Record<string, any>} Schema */

/** @param {string} reference such as #/components/schemas/SearchAnswer */
function nameOf(reference) {
  return reference.slice(reference.lastIndexOf("/") + 1);
}

// A text in which names between backticks are code.
/** @param {string} text */
export function withCode(text) {
  return text.split("`").map((part, place) => (place % 2 ? make("code", { textContent: part }) : part));
}

// The type in words, in which the names of other schemas are links.
/** @param {Schema} schema @returns {(string | HTMLElement)[]} */
export function typeOf(schema) {
  if (schema.$ref) return [make("a", { href: `#schema-${nameOf(schema.$ref)}`, textContent: nameOf(schema.$ref) })];
  if (schema.anyOf) return joined(schema.anyOf.map(typeOf));
  if (schema.enum) return [schema.enum.map((/** @type {unknown} */ value) => JSON.stringify(value)).join(" | ")];
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.type === "array") return ["list of ", ...typeOf(schema.items ?? {})];
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return ["object of ", ...typeOf(schema.additionalProperties)];
  }
  if (schema.format === "binary") return ["bytes"];
  return [schema.type ?? "anything"];
}

/** @param {(string | HTMLElement)[][]} parts */
function joined(parts) {
  return parts.flatMap((part, place) => (place ? [" | ", ...part] : part));
}

// Limits and the default, as a sentence.
/** @param {Schema} schema */
function limitsOf(schema) {
  const limits = [];
  if (schema.minimum !== undefined) limits.push(`at least ${schema.minimum}`);
  if (schema.maximum !== undefined && schema.maximum < 2 ** 53) limits.push(`at most ${schema.maximum}`);
  if (schema.maxLength !== undefined) limits.push(`up to ${schema.maxLength} characters`);
  if (schema.minItems !== undefined) limits.push(`at least ${count(schema.minItems, "item")}`);
  if (schema.maxItems !== undefined) limits.push(`up to ${count(schema.maxItems, "item")}`);
  const isEmpty = schema.default === "" || (typeof schema.default === "object" && JSON.stringify(schema.default).length === 2);
  if (schema.default !== undefined && !isEmpty) limits.push(`defaults to ${JSON.stringify(schema.default)}`);
  return limits.join(", ");
}

// A table of named values: of parameters, or of the properties of an object; those that are required come first.
/** @param {{name: string, required: boolean, schema: Schema, place?: string}[]} fields */
export function fieldTable(fields) {
  const inOrder = [...fields].sort((one, other) => Number(other.required) - Number(one.required));
  const rows = inOrder.map(({ name, required, schema, place }) => {
    const notes = [schema.description, limitsOf(schema)].filter(Boolean).join("; ");
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, make("code", { textContent: name }), required ? make("em", { textContent: " required" }) : null),
      make("td", {}, make("code", {}, ...typeOf(schema)), place ? ` in the ${place}` : null),
      make("td", {}, ...withCode(notes)),
    );
  });
  return make("table", {}, make("tbody", {}, ...rows));
}

/** @param {Schema} schema */
export function schemaTable(schema) {
  const required = new Set(schema.required ?? []);
  const properties = Object.entries(schema.properties ?? {});
  if (!properties.length) return make("p", {}, make("code", {}, ...typeOf(schema)));
  return fieldTable(properties.map(([name, part]) => ({ name, required: required.has(name), schema: part })));
}

// A value that conforms to a schema, with the required properties of objects, and those that have an example.
/** @param {Schema} schema @returns {unknown} */
export function exampleOf(schema) {
  const examples = examplesOf(schema);
  if (examples) return examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return [exampleOf(schema.items ?? {})];
  if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 1;
  if (schema.type === "boolean") return true;
  if (schema.type === "string") return "";
  if (schema.type !== "object") return null;
  const required = new Set(schema.required ?? []);
  const shown = Object.entries(schema.properties ?? {}).filter(([name, part]) => required.has(name) || examplesOf(part));
  return Object.fromEntries(shown.map(([name, part]) => [name, exampleOf(part)]));
}

// The examples of a value, which may be one of several forms, such as a text or null.
/** @param {Schema} schema @returns {any[] | undefined} */
function examplesOf(schema) {
  return schema.examples ?? schema.anyOf?.find((/** @type {Schema} */ form) => form.examples)?.examples;
}
