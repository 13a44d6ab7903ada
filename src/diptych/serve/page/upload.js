// Lets the user choose, drop or paste a picture.

import { MAX_UPLOAD } from "./api.js";

/**
 * @param {HTMLInputElement} input
 * @param {(file: File) => void} onPicture
 * @param {(message: string) => void} onProblem
 */
export function watchForPictures(input, onPicture, onProblem) {
  /** @param {File | undefined} file */
  const take = (file) => {
    if (!file) return;
    if (file.size > MAX_UPLOAD) {
      const size = (file.size / 1024 / 1024).toFixed(1);
      onProblem(`${file.name} is ${size} MB; the limit is 20 MB. Use a smaller copy.`);
    } else onPicture(file);
  };

  input.addEventListener("change", () => {
    take(input.files?.[0]);
    input.value = ""; // so that the same file can be chosen again
  });

  document.addEventListener("paste", (event) => take(event.clipboardData?.files[0]));

  /** @param {boolean} isOver */
  const highlight = (isOver) => document.body.classList.toggle("dropping", isOver);
  // Dragged text is left to the browser: it may be dropped into a field.
  /** @param {DragEvent} event */
  const hasFileOrLink = ({ dataTransfer }) =>
    Boolean(dataTransfer && ["Files", "text/uri-list"].some((type) => dataTransfer.types.includes(type)));

  document.addEventListener("dragover", (event) => {
    if (!hasFileOrLink(event)) return;
    event.preventDefault();
    highlight(true);
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && highlight(false));
  document.addEventListener("drop", (event) => {
    highlight(false);
    if (!hasFileOrLink(event)) return;
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) take(file);
    else onProblem("Links cannot be dropped: save the picture and drop the file.");
  });
}
