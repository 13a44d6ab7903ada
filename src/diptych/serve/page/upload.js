// A picture of the user's own: chosen, dropped anywhere, or pasted.

import { LARGEST } from "./api.js";

export function watchForPictures(input, asks, complains) {
  const take = (file) => {
    if (!file) return;
    if (file.size > LARGEST) {
      const size = (file.size / 1024 / 1024).toFixed(1);
      complains(`${file.name} has ${size} MB; a picture may have 20 MB. Take a smaller copy of it.`);
    } else asks(file);
  };

  input.addEventListener("change", () => {
    take(input.files[0]);
    input.value = ""; // so that the same file can be chosen again
  });

  document.addEventListener("paste", (event) => take(event.clipboardData?.files[0]));

  const over = (is) => document.body.classList.toggle("dropping", is);
  const brings = (event, type) => event.dataTransfer?.types.includes(type);
  document.addEventListener("dragover", (event) => {
    if (!brings(event, "Files") && !brings(event, "text/uri-list")) return; // a piece of text may go into a field
    event.preventDefault();
    over(true);
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && over(false));
  document.addEventListener("drop", (event) => {
    over(false);
    if (!brings(event, "Files") && !brings(event, "text/uri-list")) return;
    event.preventDefault();
    const file = event.dataTransfer.files[0];
    if (file) take(file);
    else complains("Only picture files can be dropped, no addresses: save the picture and drop the file.");
  });
}
