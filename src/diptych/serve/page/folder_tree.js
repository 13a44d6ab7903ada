// The folders of an index as a tree whose branches are loaded when they are opened.

import * as api from "./api.js";
import { make, quiet } from "./element.js";
import { messageOf } from "./http.js";

export class FolderTree {
  element = make("div", { className: "tree" });
  #onChosen;
  #index = "";

  /** @param {(folder: string) => void} onChosen */
  constructor(onChosen) {
    this.#onChosen = onChosen;
  }

  // Show the tree of an index with a folder opened and marked; true if there are folders.
  /** @param {string} index @param {string} folder */
  async show(index, folder) {
    if (index !== this.#index) {
      this.#index = index;
      this.element.replaceChildren();
      const branch = await this.#branch("");
      if (index !== this.#index) return;
      this.element.replaceChildren(branch);
    }
    const parts = folder.split("/").filter(Boolean);
    for (let depth = 1; depth < parts.length; depth += 1) await this.#open(parts.slice(0, depth).join("/"));
    for (const button of this.element.querySelectorAll("button.name")) {
      const isCurrent = button instanceof HTMLElement && button.dataset.folder === folder;
      if (isCurrent) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
    }
  }

  // Load the folders again when they are shown next.
  forget() {
    this.#index = "";
  }

  /** @param {string} path */
  async #open(path) {
    const toggle = this.element.querySelector(`button.toggle[data-folder="${CSS.escape(path)}"]`);
    if (toggle?.getAttribute("aria-expanded") === "false" && toggle.parentElement) {
      await this.#toggle(/** @type {HTMLElement} */ (toggle), path);
    }
  }

  /** @param {HTMLElement} toggle @param {string} path */
  async #toggle(toggle, path) {
    const item = toggle.closest("li");
    const isOpening = toggle.getAttribute("aria-expanded") === "false";
    toggle.setAttribute("aria-expanded", String(isOpening));
    const branch = item?.querySelector(":scope > ul, :scope > p");
    if (branch instanceof HTMLElement) branch.hidden = !isOpening;
    else item?.append(await this.#branch(path));
  }

  /** @param {string} parent */
  async #branch(parent) {
    try {
      const folders = await api.folders(this.#index, parent);
      return make("ul", { role: "list" }, ...folders.map((folder) => this.#item(folder)));
    } catch (problem) {
      return quiet(messageOf(problem));
    }
  }

  /** @param {api.Folder} folder */
  #item({ path, images, has_folders }) {
    const name = path.slice(path.lastIndexOf("/") + 1);
    const toggle = has_folders ? make("button", { type: "button", className: "toggle", "aria-label": `Folders in ${name}` }) : null;
    toggle?.setAttribute("aria-expanded", "false");
    toggle?.addEventListener("click", () => this.#toggle(toggle, path));
    const open = make(
      "button",
      { type: "button", className: "name row", title: path, onclick: () => this.#onChosen(path) },
      make("span", { className: "name", dir: "auto", textContent: name }),
      make("span", { className: "count", textContent: images.toLocaleString("en") }),
    );
    open.dataset.folder = path;
    if (toggle) toggle.dataset.folder = path;
    return make("li", {}, make("div", { className: "line" }, toggle ?? make("span", { className: "toggle" }), open));
  }
}
