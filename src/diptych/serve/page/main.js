// The page: one question at a time, shown by one pane or by two beside each other.

import * as api from "./api.js";
import { Controls } from "./controls.js";
import { make, picture } from "./element.js";
import { moveByKey } from "./hits.js";
import { Pane, problemBox } from "./pane.js";
import { asksNothing, fromAddress, toAddress } from "./question.js";
import { watchForPictures } from "./upload.js";
import { Viewer } from "./viewer.js";

const find = (name) => document.getElementById(name);
const results = find("results");
const GONE = "The picture that was asked with here is gone, because the page was loaded anew: bring it once more.";
const pictures = new Map(); // uploaded ones, by the key that the history has for them
let indexes = [];
let panes = [];
let question = null;
let settled = true; // whether the next key begins a new entry of the history
let doubled = null; // the entry of the history that has a twin after it, for Back to close the large image

const controls = new Controls(find("controls"), {
  typed: () => {
    go(typedQuestion(), settled);
    settled = false;
  },
  chosen: (again) => {
    const next = typedQuestion();
    settled = true;
    const same = question && toAddress(next) === toAddress(question) && next.picture === question.picture;
    if (!same || again) go(next, !same);
  },
});
const viewer = new Viewer(find("viewer"), (id, index) => {
  go({ ...question, text: "", picture: null, like: { id, index } }, true);
  settled = true;
  results.focus();
});

// What the form says; without a text the picture asked with stays.
function typedQuestion() {
  const read = controls.read();
  const kept = read.text.trim() ? { like: null, picture: null } : { like: question?.like, picture: question?.picture };
  return { like: null, picture: null, ...kept, ...read };
}

function go(next, isNew) {
  const key = next.picture && [...pictures].find(([, file]) => file === next.picture)[0];
  history[isNew && doubled === null ? "pushState" : "replaceState"](key && { picture: key }, "", toAddress(next));
  doubled = null;
  show(next);
}

// The question of this entry of the history; its picture is known to the load of the page that it was brought to.
function recall(typed = {}) {
  const key = history.state?.picture;
  show({ ...fromAddress(location.search), picture: pictures.get(key) ?? null, ...typed });
  if (key && !pictures.has(key)) complain(GONE);
}

function entry() {
  return `${location.href} ${history.state?.picture ?? ""}`;
}

function open(...what) {
  viewer.open(...what);
  if (doubled === null) history.pushState(history.state, "");
  doubled = entry();
}

function show(next) {
  if (!indexes.length) return;
  const name = (wanted) => indexes.find((index) => index.name === wanted)?.name;
  const index = name(next.index) ?? indexes[0].name;
  const beside = name(next.beside) === index ? undefined : name(next.beside);
  question = { ...next, index, beside };
  if (question.like && !name(question.like.index)) question.like = { ...question.like, index };
  controls.show(question);
  document.title = question.text.trim() ? `${question.text.trim()} · Diptych` : "Diptych";
  find("problem").replaceChildren();
  showAsked();
  const shown = [index, beside].filter(Boolean).map((wanted) => indexes.find((one) => one.name === wanted));
  while (panes.length > shown.length) panes.pop().close();
  while (panes.length < shown.length) {
    panes.push(new Pane({ open, suggest, lookAgain: start, changed: tell }));
    find("panes").append(panes.at(-1).element);
  }
  find("panes").classList.toggle("two", shown.length > 1);
  if (!asksNothing(question) && !find("status").textContent) find("status").textContent = "Searching …";
  panes.forEach((pane, place) => pane.show(shown[place], question, shown.length > 1));
}

function tell() {
  const told = panes.map((pane) => pane.told);
  if (!told.includes(null)) find("status").textContent = told.filter(Boolean).join(" ");
}

function suggest(text) {
  go({ ...question, text, like: null, picture: null }, true);
  settled = true;
  controls.focus();
}

function showAsked() {
  const { like, picture: file } = question;
  const asked = find("asked");
  const old = asked.querySelector("img")?.src;
  if (old?.startsWith("blob:")) URL.revokeObjectURL(old);
  asked.hidden = !like && !file;
  if (asked.hidden) return asked.replaceChildren();
  const address = file ? URL.createObjectURL(file) : api.image(like.id, like.index, "thumbnail");
  const remove = () => {
    go({ ...question, like: null, picture: null }, true);
    controls.focus();
  };
  const shown = picture(address, "The picture asked with");
  const tile = make("span", { className: "tile" }, shown);
  shown.addEventListener("error", () => tile.remove()); // there are pictures that only the server can read
  asked.replaceChildren(
    tile,
    make("p", { dir: "auto", textContent: file ? file.name : "More like this" }),
    make("button", { type: "button", textContent: "Remove", onclick: remove }),
  );
}

function complain(sentence, again) {
  find("problem").replaceChildren(problemBox(sentence, again));
}

watchForPictures(
  find("picture"),
  (file) => {
    find("viewer").close();
    // No randomUUID: browsers have it only at secure addresses, and another device may come by plain HTTP.
    pictures.set(String(crypto.getRandomValues(new BigUint64Array(1))[0]), file);
    go({ ...question, ...controls.read(), text: "", like: null, picture: file }, true);
    settled = true;
  },
  complain,
);

addEventListener("popstate", () => {
  const fromTwin = entry() === doubled;
  const wasOpen = find("viewer").open;
  doubled = null;
  find("viewer").close();
  if (fromTwin && wasOpen) return;
  if (fromTwin) return history.back(); // the large image was closed before, by other means
  settled = true;
  recall();
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=radio]), select, textarea, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    controls.focus();
  } else if (event.key === "ArrowDown" && event.target.id === "text") {
    event.preventDefault();
    results.querySelector("button.hit, button.example")?.focus();
  }
});
results.addEventListener("keydown", (event) => moveByKey(event, results));

async function start() {
  find("problem").replaceChildren();
  try {
    indexes = await api.indexes();
  } catch (problem) {
    return complain(problem.message, start);
  }
  if (!indexes.length) return complain("The server has no index; start it with “diptych serve INDEX”.", start);
  controls.offer(indexes);
  const typed = controls.read().text; // while the page was on its way
  recall(typed.trim() ? { text: typed, picture: null } : {});
}

await start();
if (matchMedia("(hover: hover)").matches && !results.contains(document.activeElement)) find("text").focus();
