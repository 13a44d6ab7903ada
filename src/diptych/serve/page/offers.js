// Hides the controls for "more like these, less like those" if the server does not offer it.

import { requestJson } from "./http.js";

export async function markOffers() {
  const { paths } = await requestJson("openapi.json");
  const parameters = paths["/search"].get.parameters.map((/** @type {{ name: string }} */ { name }) => name);
  document.body.classList.toggle("no-feedback", !parameters.includes("more"));
}
