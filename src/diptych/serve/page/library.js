// The side of the page: all photos, favourites, folders and albums of an index.

import { AlbumList } from "./album_list.js";
import { FAVOURITES } from "./albums.js";
import { askConsent, askName } from "./ask.js";
import { make } from "./element.js";
import { FolderTree } from "./folder_tree.js";
import { icon, iconButton } from "./icons.js";
import { notify, notifyProblem } from "./notices.js";

/**
 * @typedef {import("./albums.js").Album} Album
 * @typedef {import("./query.js").Query} Query
 * @typedef {{ folder: string, album: string }} Where
 */

export class Library {
  #element;
  #albums;
  #onGo;
  #where = { folder: "", album: "" };
  #all = this.#entry("photos", "All photos", { folder: "", album: "" });
  #favourites = this.#entry("heart", "Favourites", { folder: "", album: String(FAVOURITES) });
  #tree = new FolderTree((folder) => this.#go({ folder, album: "" }));
  #folders = make("section", { "aria-label": "Folders" }, make("h2", { textContent: "Folders" }), this.#tree.element);
  #list = new AlbumList((album) => this.#row(album));

  /**
   * @param {HTMLElement} element @param {import("./albums.js").Albums} albums
   * @param {(where: Where) => void} onGo
   */
  constructor(element, albums, onGo) {
    this.#element = element;
    this.#albums = albums;
    this.#onGo = onGo;
    const create = iconButton("more", "New album", () => this.#create(), false);
    const heading = make("div", { className: "heading" }, make("h2", { textContent: "Albums" }), create);
    const collection = make("section", { "aria-label": "Albums" }, heading, this.#list.element);
    element.append(this.#all, this.#favourites, this.#folders, collection);
    albums.addEventListener("change", () => this.#list.show(albums.list));
  }

  /** @param {string} index @param {Query} query */
  async show(index, { filters: { folder, album } }) {
    this.#where = { folder, album };
    this.#mark();
    this.#list.show(this.#albums.list);
    await this.#tree.show(index, folder);
    this.#folders.hidden = !this.#tree.element.querySelector("li, p");
  }

  // Show the folders as they are now.
  /** @param {string} index @param {Query} query */
  reload(index, query) {
    this.#tree.forget();
    return this.show(index, query);
  }

  #mark() {
    const { folder, album } = this.#where;
    setCurrent(this.#all, !folder && !album);
    setCurrent(this.#favourites, album === String(FAVOURITES));
  }

  /** @param {Where} where */
  #go(where) {
    if (this.#element.matches(":popover-open")) this.#element.hidePopover();
    this.#onGo(where);
  }

  /** @param {import("./icons.js").Icon} sign @param {string} name @param {Where} where */
  #entry(sign, name, where) {
    const button = make("button", { type: "button", className: "row", onclick: () => this.#go(where) }, icon(sign));
    button.append(make("span", { className: "name", textContent: name }));
    return button;
  }

  /** @param {Album} album */
  #row(album) {
    const name = make("span", { className: "name", dir: "auto", textContent: album.name });
    const number = make("span", { className: "count", textContent: album.images.toLocaleString("en") });
    const onclick = () => this.#go({ folder: "", album: String(album.id) });
    const open = make("button", { type: "button", className: "row", onclick }, name, number);
    setCurrent(open, this.#where.album === String(album.id));
    const rename = iconButton("rename", `Rename ${album.name}`, () => this.#rename(album), false);
    const remove = iconButton("delete", `Delete ${album.name}`, () => this.#delete(album), false);
    return make("div", { className: "line" }, open, rename, remove);
  }

  async #create() {
    const name = await askName("New album", "Create album");
    if (name !== null) await attempt(() => this.#albums.create(name));
  }

  /** @param {Album} album */
  async #rename({ id, name }) {
    const renamed = await askName("Rename the album", "Rename", name);
    if (renamed !== null && renamed !== name) await attempt(() => this.#albums.rename(id, renamed));
  }

  /** @param {Album} album */
  async #delete({ id, name }) {
    const text = "The pictures themselves stay where they are.";
    if (!(await askConsent(`Delete the album “${name}”?`, text, "Delete album"))) return;
    await attempt(() => this.#albums.delete(id));
    notify(`The album “${name}” has been deleted.`);
    if (this.#where.album === String(id)) this.#go({ folder: "", album: "" });
  }
}

/** @param {() => Promise<unknown>} change */
async function attempt(change) {
  try {
    await change();
  } catch (problem) {
    notifyProblem(problem);
  }
}

/** @param {HTMLElement} button @param {boolean} isCurrent */
function setCurrent(button, isCurrent) {
  if (isCurrent) button.setAttribute("aria-current", "page");
  else button.removeAttribute("aria-current");
}
