"""The layout of justified rows, in a real browser."""

import itertools

LAYOUTS = """async () => {
  const { justify } = await import("./page/rows.js");
  let seed = 7;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  return Array.from({ length: 60 }, () => {
    const room = { width: Math.round(250 + 1500 * random()), height: 120 + Math.round(100 * random()), gap: 6 };
    const pictures = Array.from({ length: Math.round(40 * random()) }, () => ({
      width: Math.round(4000 * random() ** 2), height: Math.round(4000 * random()),
    }));
    return { room, pictures, boxes: justify(pictures, room) };
  });
}"""


def rows_of(boxes):
    """The boxes of each row, as positions."""
    rows = {}
    for position, box in enumerate(boxes):
        rows.setdefault(box["top"], []).append(position)
    return list(rows.values())


def ratio(picture):
    """Width by height, limited as in rows.js."""
    if not (picture["width"] and picture["height"]):
        return 1
    return min(4, max(0.45, picture["width"] / picture["height"]))


def test_rows_fill_the_width_and_pictures_keep_their_shape(open_page):
    page = open_page()
    layouts = page.evaluate(LAYOUTS)
    assert sum(len(layout["boxes"]) for layout in layouts) > 500
    for layout in layouts:
        room, boxes, pictures = layout["room"], layout["boxes"], layout["pictures"]
        assert len(boxes) == len(pictures)
        rows, bottom = rows_of(boxes), 0
        for number, row in enumerate(rows):
            first, last = boxes[row[0]], boxes[row[-1]]
            assert first["left"] == 0
            assert first["top"] == bottom
            bottom += first["height"] + room["gap"]
            right = last["left"] + last["width"]
            assert right <= room["width"]
            if number < len(rows) - 1:
                assert right == room["width"]
            else:
                assert first["height"] <= room["height"]  # the last row is not stretched
            for place in row:
                box = boxes[place]
                assert box["height"] == first["height"]
                assert abs(box["width"] - ratio(pictures[place]) * box["height"]) <= 0.5 * ratio(pictures[place]) + 2
            lefts = [(boxes[place]["left"], boxes[place]["width"]) for place in row]
            gaps = [after - left - width for (left, width), (after, _) in itertools.pairwise(lefts)]
            assert all(abs(gap - room["gap"]) <= 1 for gap in gaps)
