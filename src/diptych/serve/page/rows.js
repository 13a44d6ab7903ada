// Justified rows: pictures keep their shape, and every row but the last fills the width.

/** @typedef {{ left: number, top: number, width: number, height: number }} Box */

const NARROWEST = 0.45; // width by height: beyond these, a picture has margins in its box
const WIDEST = 4;

/**
 * @param {{ width: number, height: number }[]} pictures
 * @param {{ width: number, height: number, gap: number }} room the width to fill and the height to come close to
 * @returns {Box[]}
 */
export function justify(pictures, { width, height, gap }) {
  const ratios = pictures.map(ratioOf);
  /** @type {Box[]} */
  const boxes = [];
  let top = 0;
  while (boxes.length < ratios.length) {
    const { count, height: fitted } = nextRow(ratios, boxes.length, { width, height, gap });
    const rowHeight = Math.max(1, Math.round(fitted));
    let left = 0; // not rounded, so that rounding errors do not add up
    for (const ratio of ratios.slice(boxes.length, boxes.length + count)) {
      const right = Math.min(width, left + ratio * fitted);
      boxes.push({ left: Math.round(left), top, width: Math.round(right) - Math.round(left), height: rowHeight });
      left = right + gap;
    }
    top += rowHeight + gap;
  }
  return boxes;
}

/** @param {Box[]} boxes */
export function heightOf(boxes) {
  const last = boxes.at(-1);
  return last ? last.top + last.height : 0;
}

// The position of the first box that ends below a height.
/** @param {Box[]} boxes @param {number} height */
export function firstBelow(boxes, height) {
  let low = 0;
  let high = boxes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (boxes[middle].top + boxes[middle].height > height) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The box of the row above or below that is nearest to a box; undefined if there is no such row.
/** @param {Box[]} boxes @param {number} from @param {1 | -1} step */
export function inNextRow(boxes, from, step) {
  const { top } = boxes[from];
  let position = from;
  while (boxes[position]?.top === top) position += step;
  return boxes[position] && nearestInRow(boxes, position, middleOf(boxes[from]));
}

// The box nearest to a horizontal position in the row that contains another one.
/** @param {Box[]} boxes @param {number} inRow @param {number} across */
export function nearestInRow(boxes, inRow, across) {
  const { top } = boxes[inRow];
  const row = boxes.flatMap((box, position) => (box.top === top ? [position] : []));
  /** @param {number} position */
  const distance = (position) => Math.abs(middleOf(boxes[position]) - across);
  return row.reduce((best, position) => (distance(position) < distance(best) ? position : best));
}

/** @param {Box} box */
export function middleOf({ left, width }) {
  return left + width / 2;
}

/** @param {{ width: number, height: number }} picture */
function ratioOf({ width, height }) {
  return width && height ? Math.min(WIDEST, Math.max(NARROWEST, width / height)) : 1;
}

// How many pictures come into the next row, and its height: as close to the wanted one as possible.
/** @param {number[]} ratios @param {number} first @param {{ width: number, height: number, gap: number }} room */
function nextRow(ratios, first, { width, height, gap }) {
  let sum = 0;
  for (let count = 1; first + count <= ratios.length; count += 1) {
    const ratio = ratios[first + count - 1];
    sum += ratio;
    const fitted = (width - (count - 1) * gap) / sum;
    if (fitted > height) continue;
    const without = (width - (count - 2) * gap) / (sum - ratio);
    return count > 1 && without / height < height / fitted
      ? { count: count - 1, height: without }
      : { count, height: fitted };
  }
  return { count: ratios.length - first, height }; // the last row is not stretched
}
