// What the service answers; what goes wrong becomes a Problem, whose message is a sentence for people.

export const LARGEST = 20 * 1024 * 1024;

export class Problem extends Error {}

async function ask(address, options) {
  let response;
  let body = null;
  try {
    response = await fetch(address, options);
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!response) throw new Problem("The server does not answer. Is “diptych serve” still running?");
  }
  if (response.ok && body) return body;
  throw new Problem(told(body) ?? `The server gave no answer that could be read (status ${response.status}).`);
}

function asking(index, to, k, filters) {
  const query = new URLSearchParams({ index, to, k });
  for (const name of ["folder", "since", "until", "split"]) if (filters[name]) query.set(name, filters[name]);
  for (const [column, value] of Object.entries(filters.columns)) query.append("where", `${column}=${value}`);
  return query;
}

export async function indexes() {
  return (await ask("indexes")).indexes;
}

export function search(text, { index, to, k, filters }, signal) {
  const query = asking(index, to, k, filters);
  query.set("text", text);
  return ask(`search?${query}`, { signal });
}

export function similar(id, { index, to, k, filters }, signal) {
  const query = asking(index, to, k, filters);
  query.set("id", id);
  return ask(`similar?${query}`, { signal });
}

export function similarTo(picture, { index, to, k, filters }, signal) {
  const headers = { "Content-Type": picture.type || "application/octet-stream" };
  return ask(`similar?${asking(index, to, k, filters)}`, { method: "POST", body: picture, headers, signal });
}

export function explain(id, text, index, signal) {
  return ask(`explain?${new URLSearchParams({ id, text, index })}`, { signal });
}

export function localize(id, text, index, signal) {
  return ask(`localize?${new URLSearchParams({ id, text, index })}`, { signal });
}

export function image(id, index, size) {
  return `image/${id}?${new URLSearchParams({ index, size })}`;
}

// The bytes of an image of an index, to ask another index with.
export async function bytes(id, index, signal) {
  const response = await fetch(image(id, index, "large"), { signal });
  if (!response.ok) throw new Problem(await sentence(response));
  return response.blob();
}

// Why an image cannot be shown: an <img> does not tell.
export async function whyNot(address) {
  try {
    const response = await fetch(address);
    return response.ok ? "This picture cannot be shown." : await sentence(response);
  } catch {
    return "The server does not answer. Is “diptych serve” still running?";
  }
}

async function sentence(response) {
  const body = await response.json().catch(() => null);
  return told(body) ?? "This picture cannot be had.";
}

// The service's sentence with a capital letter; the name of a file, which may come first, stays as it is.
function told(body) {
  const error = body?.error;
  return error && !/^[^:]*[./][^:]*:/.test(error) ? error[0].toUpperCase() + error.slice(1) : error;
}
