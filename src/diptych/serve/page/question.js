// What is asked, and its address: a question can be shared, and gone back to.
// An uploaded picture has no address; it is kept for as long as the page is open.

export const NO_FILTERS = Object.freeze({ folder: "", since: "", until: "", split: "", columns: Object.freeze({}) });

const NAMES = ["folder", "since", "until", "split"];

export function fromAddress(search) {
  const query = new URLSearchParams(search);
  const filters = { columns: {} };
  for (const name of NAMES) filters[name] = query.get(name) ?? "";
  for (const where of query.getAll("where")) {
    const [column, ...value] = where.split("=");
    if (column && value.length) filters.columns[column] = value.join("=");
  }
  const like = query.get("like");
  return {
    text: query.get("q") ?? "",
    like: /^\d+$/.test(like ?? "") ? { id: Number(like), index: query.get("of") ?? query.get("index") } : null,
    picture: null,
    to: query.get("to") === "text" ? "text" : "image",
    index: query.get("index"),
    beside: query.get("beside"),
    filters,
  };
}

export function toAddress({ text, like, to, index, beside, filters }) {
  const query = new URLSearchParams();
  if (text.trim()) query.set("q", text);
  if (like) {
    query.set("like", like.id);
    query.set("of", like.index);
  }
  if (to === "text") query.set("to", to);
  if (index) query.set("index", index);
  if (beside) query.set("beside", beside);
  for (const name of NAMES) if (filters[name]) query.set(name, filters[name]);
  for (const [column, value] of Object.entries(filters.columns)) query.append("where", `${column}=${value}`);
  return String(query) ? `?${query}` : "./";
}

export function asksNothing({ text, like, picture }) {
  return !text.trim() && !like && !picture;
}
