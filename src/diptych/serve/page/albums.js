// The albums of an index, of which the favourites are one; tells listeners ("change") when they change.

import { requestJson, send } from "./http.js";

/** @typedef {{ id: number, name: string, images: number }} Album */

export const FAVOURITES = 0; // the id of this album

export class Albums extends EventTarget {
  /** @type {Album[]} without the favourites */
  list = [];
  index = "";
  /** @type {Map<number, boolean>} whether pictures are favourites, as far as is known */
  #favourites = new Map();

  /** @param {string} index */
  async load(index) {
    if (index !== this.index) this.#favourites.clear();
    this.index = index;
    const { albums } = await requestJson(this.#url("albums"));
    if (index !== this.index) return;
    this.list = albums.filter((/** @type {Album} */ { id }) => id !== FAVOURITES);
    this.dispatchEvent(new Event("change"));
  }

  /** @param {number} id */
  name(id) {
    return id === FAVOURITES ? "Favourites" : (this.list.find((album) => album.id === id)?.name ?? "Album");
  }

  /** @param {string} name @returns {Promise<Album>} */
  async create(name) {
    const album = await send("POST", this.#url("albums"), { name });
    await this.load(this.index);
    return album;
  }

  /** @param {number} id @param {string} name */
  async rename(id, name) {
    await send("PATCH", this.#url(`albums/${id}`), { name });
    await this.load(this.index);
  }

  /** @param {number} id */
  async delete(id) {
    await send("DELETE", this.#url(`albums/${id}`));
    await this.load(this.index);
  }

  // Put pictures into an album, or take them out of it.
  /** @param {number} id @param {number[]} ids @param {boolean} isMember */
  async setMembers(id, ids, isMember) {
    if (id === FAVOURITES) {
      await send("POST", this.#url("favourites"), { ids, favourite: isMember });
      this.#remember(ids, isMember);
    } else await send("POST", this.#url(`albums/${id}/${isMember ? "images" : "remove"}`), { ids });
    await this.load(this.index);
  }

  // Whether a picture is a favourite; undefined if that is not known here.
  /** @param {number} id */
  isFavourite(id) {
    return this.#favourites.get(id);
  }

  /** @param {number[]} ids @param {boolean} isFavourite */
  #remember(ids, isFavourite) {
    for (const id of ids) this.#favourites.set(id, isFavourite);
  }

  // What the details of a picture say.
  /** @param {number} id @param {boolean} isFavourite */
  learn(id, isFavourite) {
    this.#remember([id], isFavourite);
  }

  /** @param {string} path */
  #url(path) {
    return `${path}?${new URLSearchParams({ index: this.index })}`;
  }
}
