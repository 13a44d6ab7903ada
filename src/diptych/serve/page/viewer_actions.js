// The buttons of the large view: what can be done with the picture, and with its file.

import { originalUrl } from "./api.js";
import { make } from "./element.js";
import { send } from "./http.js";
import { icon, iconButton, named } from "./icons.js";
import { notify, notifyProblem } from "./notices.js";

/** @typedef {import("./api.js").Details} Details */

/**
 * @param {number} image @param {string} index
 * @param {HTMLElement} dialog which tells ("details") when the details have been loaded
 * @param {import("./actions.js").Actions} actions @param {AbortSignal} signal
 * @param {{ onSimilar: () => void, onMore: () => void, onLess: () => void }} callbacks
 */
export function viewerActions(image, index, dialog, actions, signal, { onSimilar, onMore, onLess }) {
  const favourite = named("favourite", iconButton("heart", "Favourite", () => actions.toggleFavourite(image)));
  favourite.setAttribute("aria-pressed", "false");
  const files = [
    fileLink("open", "Open original", { href: originalUrl(image, index, true), target: "_blank", rel: "noopener" }),
    fileLink("download", "Download", { href: originalUrl(image, index), download: "" }),
  ];
  const onDisk = make("div", { className: "actions", hidden: true });
  const row = make(
    "div",
    { className: "actions" },
    favourite,
    named("album", iconButton("album", "Add to album", () => actions.addToAlbum([image]))),
    ...files,
    onDisk,
    named("more", iconButton("more", "More like this", onMore)),
    named("less", iconButton("less", "Less like this", onLess)),
    named("similar", iconButton("similar", "Similar pictures", onSimilar)),
  );
  const show = (/** @type {Event} */ event) => {
    const { favourite: isFavourite, has_file: hasFile, path } = /** @type {CustomEvent<Details>} */ (event).detail;
    favourite.setAttribute("aria-pressed", String(isFavourite));
    for (const link of files) link.hidden = !hasFile; // what is gone can be neither opened nor downloaded
    if (!hasFile || !path || !onDisk.hidden) return;
    onDisk.hidden = false;
    const reveal = () => send("POST", `reveal?${new URLSearchParams({ index })}`, { id: image }).catch(notifyProblem);
    onDisk.append(
      named("reveal", iconButton("folder", "Show in folder", reveal)),
      named("copy", iconButton("copy", "Copy path", () => copy(path))),
    );
  };
  dialog.addEventListener("details", show, { signal });
  return row;
}

/** @param {string} path */
async function copy(path) {
  try {
    await navigator.clipboard.writeText(path);
    notify("The path has been copied.");
  } catch {
    notify(path); // browsers refuse without a secure connection, or without permission
  }
}

/** @param {"open" | "download"} sign @param {string} label @param {Record<string, string>} properties */
function fileLink(sign, label, properties) {
  const link = make("a", { className: "button labelled", ...properties }, icon(sign), make("span", { textContent: label }));
  return named(sign, link);
}
