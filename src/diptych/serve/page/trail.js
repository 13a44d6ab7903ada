// The history of the browser: one entry per query, with the place in it, and one more while a picture is open.
//
// The fragment of the URL says where: #at-12 is the first picture in view, #photo-12 the open one. The entry of an open
// picture is a copy of the one before it, so that Back closes the picture; the next query replaces it.

/** @typedef {{ kind: "at" | "photo", id: number }} Spot */
/** @typedef {{ picture: string | null, isCopy: boolean }} State */

export class Trail {
  /** @type {State} */
  #state = stateOf(history.state);

  constructor() {
    history.scrollRestoration = "manual"; // the pictures to scroll to are not loaded yet
  }

  get picture() {
    return this.#state.picture;
  }

  /** @returns {Spot | null} */
  get spot() {
    const found = /^#(at|photo)-(\d+)$/.exec(location.hash);
    return found && { kind: found[1] === "at" ? "at" : "photo", id: Number(found[2]) };
  }

  // Go to a query; it replaces the current one unless it is new.
  /** @param {string} url @param {string | null} picture the key of an uploaded picture @param {boolean} isNew */
  go(url, picture, isNew) {
    this.#write(isNew && !this.#state.isCopy, { picture, isCopy: false }, url);
  }

  // Remember the picture that is open.
  /** @param {number} id */
  open(id) {
    this.#write(!this.#state.isCopy, { ...this.#state, isCopy: true }, here({ kind: "photo", id }));
  }

  // Remember where the page has been scrolled to.
  /** @param {number | null} id */
  stay(id) {
    this.#write(false, this.#state, here(id === null ? null : { kind: "at", id }));
  }

  // The browser has moved to another entry; true if it left a copy for its original, which shows the same query.
  arrive() {
    const wasCopy = this.#state.isCopy;
    this.#state = stateOf(history.state);
    return wasCopy && !this.#state.isCopy;
  }

  /** @param {boolean} isNew @param {State} state @param {string} url */
  #write(isNew, state, url) {
    this.#state = state;
    if (isNew) history.pushState(state, "", url);
    else history.replaceState(state, "", url);
  }
}

/** @param {Spot | null} spot */
function here(spot) {
  return location.pathname + location.search + (spot ? `#${spot.kind}-${spot.id}` : "");
}

/** @param {any} state @returns {State} */
function stateOf(state) {
  return { picture: state?.picture ?? null, isCopy: Boolean(state?.isCopy) };
}
