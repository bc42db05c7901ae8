"""Draws the picture of the README: `python scripts/overview_picture.py > docs/overview.svg`."""

from __future__ import annotations

WIDTH, HEIGHT = 880, 372
TITLE = (
    "Tasks write rows to every in-sync node, and the driver commits them with one journal entry. Readers read what the "
    "journal names from the nearest node."
)
STYLE = """\
<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; font-size: 15px; }
  .small { font-size: 12px; fill: #57606a; }
  .step { font-weight: 600; fill: #0550ae; }
  .paper { fill: #ffffff; }
  .room { fill: #f6f8fa; stroke: #8c959f; }
  .part { fill: #ffffff; stroke: #8c959f; }
  .rows { fill: #b6d7f4; stroke: #57606a; }
  .entry { fill: #ffe7b3; stroke: #57606a; }
  .arrow { stroke: #0550ae; stroke-width: 1.6; fill: none; marker-end: url(#head); }
  #head path { fill: #0550ae; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9da7b1; } .step { fill: #79c0ff; } .paper { fill: #0d1117; }
    .room { fill: #161b22; stroke: #6e7681; } .part { fill: #0d1117; stroke: #6e7681; }
    .rows { fill: #1f4f7f; stroke: #9da7b1; } .entry { fill: #6b4e12; stroke: #9da7b1; }
    .arrow { stroke: #79c0ff; } #head path { fill: #79c0ff; }
  }
</style>
<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
  <path d="M0,0 L10,5 L0,10 z"/></marker>"""


def box(x: int, y: int, width: int, height: int, kind: str) -> str:
    """Return a rectangle with round corners."""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def text(x: int, y: int, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>'


def arrow(*points: tuple[int, int]) -> str:
    """Return an arrow through some points."""
    return f'<path class="arrow" d="M{" L".join(f"{x},{y}" for x, y in points)}"/>'


def program(x: int, title: str, driver: str, tasks: str) -> list[str]:
    """Return a Spark query: its driver below its tasks."""
    return [
        box(x, 16, 150, 340, "room"),
        text(x + 75, 40, title, "title", "middle"),
        box(x + 14, 60, 122, 150, "part"),
        text(x + 75, 126, "tasks", anchor="middle"),
        text(x + 75, 146, tasks, "small", "middle"),
        box(x + 14, 262, 122, 74, "part"),
        text(x + 75, 290, "driver", anchor="middle"),
        text(x + 75, 310, driver, "small", "middle"),
    ]


def stores() -> list[str]:
    """Return the stores: three nodes with segments, and the journal of a topic."""
    drawn = [box(262, 16, 356, 340, "room"), text(440, 40, "disks, mounts or buckets", "title", "middle")]
    for number, y in enumerate((60, 112, 164)):
        drawn += [box(276, y, 328, 46, "part"), text(288, y + 28, f"node {number}")]
        drawn += [box(346 + 50 * each, y + 12, 44, 22, "rows") for each in range(5)]
    drawn += [text(440, 230, "the same rows on each: segment files", "small", "middle")]
    drawn += [box(276, 262, 328, 74, "part"), text(288, 284, "the topic's journal")]
    drawn += [box(288 + 40 * each, 296, 34, 22, "entry") for each in range(6)]
    drawn += [text(305 + 40 * each, 312, str(each + 1), "small", "middle") for each in range(6)]
    return [*drawn, text(536, 312, "entries", "small")]


def picture() -> str:
    """Return the picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<title>{TITLE}</title>",
        STYLE,
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        *program(16, "writeStream", "commits", "write files"),
        *stores(),
        *program(714, "readStream", "plans", "read files"),
        arrow((152, 135), (274, 135)),
        text(214, 124, "1 rows", "step", "middle"),
        arrow((152, 299), (274, 299)),
        text(214, 288, "2 entry", "step", "middle"),
        arrow((604, 299), (726, 299)),
        text(666, 288, "3 file names", "step", "middle"),
        arrow((604, 135), (726, 135)),
        text(666, 124, "4 rows", "step", "middle"),
        "</svg>",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    print(picture())
