// What can be done with pictures: favourites, albums, exports. Each says what it did, or why it failed.

import { details } from "./api.js";
import { FAVOURITES } from "./albums.js";
import { askAlbum } from "./ask.js";
import { download } from "./download.js";
import { count } from "./element.js";
import { notify, notifyProblem } from "./notices.js";

/** @typedef {import("./albums.js").Albums} Albums */

const FILES = { zip: "pictures.zip", list: "pictures.txt" };

export class Actions {
  #albums;
  #onRemoved;

  /** @param {Albums} albums @param {(album: number, ids: number[]) => void} onRemoved pictures have left an album */
  constructor(albums, onRemoved) {
    this.#albums = albums;
    this.#onRemoved = onRemoved;
  }

  /** @param {number[]} ids @param {boolean} isFavourite */
  async favourite(ids, isFavourite) {
    await this.#setMembers(FAVOURITES, ids, isFavourite);
  }

  /** @param {number} id */
  async toggleFavourite(id) {
    try {
      const isFavourite = this.#albums.isFavourite(id) ?? (await details(id, this.#albums.index)).favourite;
      await this.favourite([id], !isFavourite);
    } catch (problem) {
      notifyProblem(problem);
    }
  }

  /** @param {number[]} ids */
  async addToAlbum(ids) {
    const chosen = await askAlbum(this.#albums.list, `Add ${count(ids.length, "picture")} to an album`);
    if (chosen === null) return;
    try {
      const album = typeof chosen === "string" ? await this.#named(chosen) : chosen;
      await this.#setMembers(album.id, ids, true);
    } catch (problem) {
      notifyProblem(problem);
    }
  }

  /** @param {number} album @param {number[]} ids */
  async removeFromAlbum(album, ids) {
    await this.#setMembers(album, ids, false);
  }

  // Pictures in a zip file, or a list of their paths, as a download.
  /** @param {string} index @param {number[]} ids @param {"zip" | "list"} form */
  export(index, ids, form) {
    const what = `${form === "list" ? "a list of " : ""}${count(ids.length, "picture")}`;
    notify(`Downloading ${what} as ${FILES[form]} …`);
    download(`export?${new URLSearchParams({ index })}`, { ids, form }, notifyProblem);
  }

  // The album with a name, which is created unless there is one.
  /** @param {string} name */
  async #named(name) {
    return this.#albums.list.find((album) => album.name === name) ?? (await this.#albums.create(name));
  }

  /** @param {number} album @param {number[]} ids @param {boolean} isMember */
  async #setMembers(album, ids, isMember, canUndo = true) {
    try {
      await this.#albums.setMembers(album, ids, isMember);
    } catch (problem) {
      return notifyProblem(problem);
    }
    if (!isMember) this.#onRemoved(album, ids);
    const done = `${isMember ? "Added" : "Removed"} ${count(ids.length, "picture")} ${isMember ? "to" : "from"}`;
    const undo = () => this.#setMembers(album, ids, !isMember, false);
    notify(`${done} ${this.#albums.name(album)}.`, canUndo ? "Undo" : undefined, undo);
  }
}
