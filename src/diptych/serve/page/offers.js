// Hides what the server does not offer: each name becomes a class of the page, for which the styles hide controls.

import { requestJson } from "./http.js";

const ROUTES = { albums: "/albums", originals: "/original/{id}", export: "/export", entry: "/entry/{id}" };

export async function markOffers() {
  const { paths } = await requestJson("openapi.json");
  for (const [name, path] of Object.entries(ROUTES)) document.body.classList.toggle(`no-${name}`, !(path in paths));
  const parameters = paths["/search"].get.parameters.map((/** @type {{ name: string }} */ { name }) => name);
  document.body.classList.toggle("no-feedback", !parameters.includes("more"));
}
