// The picture in the large view, in a frame of its shape: first the thumbnail, then the large image, or its video.

import * as api from "./api.js";
import { make } from "./element.js";
import { whyNotShown } from "./http.js";

export class Stage {
  #index;
  #alt;
  #moment;
  #frame = make("div", { className: "frame" });
  #note = make("p", { className: "quiet" });
  boxes = make("div", { className: "boxes", "aria-hidden": "true" });
  element = make("figure", { className: "stage" }, this.#frame, this.#note);

  /** @param {api.Item} item @param {number} image @param {string} index */
  constructor(item, image, index) {
    this.#index = index;
    this.image = image; // of the item
    this.shown = image; // which may be a near-duplicate
    this.#alt = item.captions?.[0] ?? item.text ?? item.key;
    this.#moment = item.kind === "image" ? item.moment : null;
    this.#setShape(item.width || 1, item.height || 1);
    this.#frame.addEventListener("click", (event) => event.target instanceof HTMLImageElement && this.zoom(event));
    this.show(image);
  }

  // Whether a picture is shown, and not a video, which has its own controls.
  get isPicture() {
    return this.#frame.querySelector("img") !== null;
  }

  // Show the picture of the item, or that of a near-duplicate.
  /** @param {number} id */
  show(id) {
    this.shown = id;
    this.#setZoom(false);
    const thumbnail = api.imageUrl(id, this.#index, "thumbnail");
    this.#note.textContent = "";
    this.#frame.style.setProperty("background-image", `url("${thumbnail}")`);
    this.boxes.replaceChildren();
    const moment = id === this.image ? this.#moment : null;
    this.#frame.replaceChildren(typeof moment === "number" ? this.#video(id, moment) : this.#picture(id), this.boxes);
  }

  // Enlarge the picture around a point, or show the whole again.
  /** @param {{ clientX: number, clientY: number } | null} point */
  zoom(point = null) {
    if (!this.isPicture) return;
    const box = this.#frame.getBoundingClientRect();
    const across = point ? (point.clientX - box.left) / box.width : 0.5;
    const down = point ? (point.clientY - box.top) / box.height : 0.5;
    if (!this.#setZoom(!this.element.classList.contains("zoomed"))) return;
    const { scrollWidth, scrollHeight, clientWidth, clientHeight } = this.element;
    this.element.scrollTo(across * scrollWidth - clientWidth / 2, down * scrollHeight - clientHeight / 2);
  }

  /** @param {boolean} isZoomed */
  #setZoom(isZoomed) {
    return this.element.classList.toggle("zoomed", isZoomed);
  }

  /** @param {number} id */
  #picture(id) {
    const large = api.imageUrl(id, this.#index, "large");
    const image = make("img", { alt: this.#alt, decoding: "async" });
    image.addEventListener("load", () => this.#setShape(image.naturalWidth, image.naturalHeight));
    const fail = async () => {
      image.src = api.imageUrl(id, this.#index, "thumbnail");
      this.#note.textContent = await whyNotShown(large);
    };
    image.addEventListener("error", fail, { once: true });
    image.src = large;
    return image;
  }

  // A video from the moment that was found; its frame takes the place of one that the browser cannot play.
  /** @param {number} id @param {number} moment */
  #video(id, moment) {
    const video = make("video", { controls: true, preload: "metadata", "aria-label": this.#alt });
    video.poster = api.imageUrl(id, this.#index, "large");
    video.addEventListener("error", () => video.replaceWith(this.#picture(id)), { once: true });
    video.src = `${api.originalUrl(id, this.#index, true)}#t=${moment}`;
    return video;
  }

  /** @param {number} width @param {number} height */
  #setShape(width, height) {
    this.#frame.style.setProperty("--ratio", (width / height).toFixed(4));
  }
}
