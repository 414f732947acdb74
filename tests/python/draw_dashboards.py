"""Draws dashboards from what a Prometheus answers: python draw_dashboards.py ADDRESS MINUTES FOLDER DASHBOARD.json...

For each dashboard an SVG with its panels of lines, over the last minutes: what Grafana would show.
"""

import html
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

MOMENTS = 60
# The rate window: four scrapes, as in Grafana.
WINDOW = "20s"
WIDTH, HEIGHT, COLUMNS, TITLE = 400, 230, 3, 44
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 26, 22
LEGEND_LINE = 13
# Colours that colour-blind readers can distinguish (after Okabe and Ito); further lines repeat them with dashes.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#967800", "#56b4e9", "#404040", "#e69f00"]


def roles(address):
    """Which address is what: ports say nothing to a reader."""
    with urllib.request.urlopen(f"http://{address}/api/v1/query?query=up") as answer:
        up = json.load(answer)["data"]["result"]
    return {one["metric"]["instance"]: one["metric"].get("role", "") for one in up}


def ask(address, expression, minutes):
    end = time.time()
    arguments = {
        "query": expression.replace("$__rate_interval", WINDOW),
        "start": end - 60 * minutes,
        "end": end,
        "step": 60 * minutes / MOMENTS,
    }
    url = f"http://{address}/api/v1/query_range?{urllib.parse.urlencode(arguments)}"
    with urllib.request.urlopen(url) as answer:
        series = json.load(answer)["data"]["result"]
    for one in series:
        points = [((at - end) / 60 + minutes, float(value)) for at, value in one["values"]]
        yield one["metric"], [(at, value) for at, value in points if math.isfinite(value)]


def named(legend, labels, role_at):
    instance = labels.get("instance", "")
    labels = dict(labels, instance=role_at.get(instance, instance))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


def written(value, unit):
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit == "s":
        return f"{value:.3g} s" if abs(value) >= 1 or value == 0 else f"{1000 * value:.3g} ms"
    letters = ["", "k", "M", "G", "T"]
    power = 0
    while abs(value) >= 1000 and power < len(letters) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {letters[power]}{'B' if unit == 'bytes' else ''}".strip()


def round_step(span):
    """A step of 1, 2 or 5 times a power of ten that fits four times or so."""
    power = 10 ** math.floor(math.log10(span / 4))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= span / 4)


def bounds(panel, lines):
    values = [value for _, points in lines for _, value in points]
    if panel["fieldConfig"]["defaults"].get("max") == 1:
        return 0, 1
    low, high = min([0, *values]), max([0, *values])
    return low, high if high > low else low + 1


def stack(lines):
    """Each line on top of those before it."""
    below, stacked = {}, []
    for name, points in lines:
        for at, value in points:
            below[round(at, 3)] = below.get(round(at, 3), 0) + value
        stacked.append((name, [(at, below[round(at, 3)]) for at, _ in points]))
    return stacked


def drawn(panel, lines, minutes, x, y):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    is_stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    is_logarithmic = "scaleDistribution" in panel["fieldConfig"]["defaults"]["custom"]
    lines = stack(lines) if is_stacked else lines
    low, high = bounds(panel, lines)
    scale = lambda value: value
    if is_logarithmic:
        positive = [value for _, points in lines for _, value in points if value > 0]
        low, high = math.floor(math.log10(min(positive, default=1))), math.ceil(math.log10(max(positive, default=10)))
        high, scale = max(high, low + 1), lambda value: math.log10(max(value, 10**low))
    rows = legend_rows([name for name, _ in lines])
    left, right, top = x + LEFT, x + WIDTH - RIGHT, y + TOP
    bottom = y + HEIGHT - BOTTOM - LEGEND_LINE * len(rows)
    across = lambda at: left + (right - left) * at / minutes
    up = lambda value: bottom - (bottom - top) * (scale(value) - low) / (high - low)
    out = [f'<text x="{left}" y="{y + 17}" class="title">{html.escape(panel["title"])}</text>']
    step = round_step(high - low)
    ticks = [10**power for power in range(low, high + 1)] if is_logarithmic else [
        step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]
    for tick in ticks:
        out.append(f'<path d="M{left} {up(tick):.1f}H{right}" class="grid"/>')
        out.append(f'<text x="{left - 5}" y="{up(tick) + 3.5:.1f}" class="value">{written(tick, unit)}</text>')
    for minute in range(0, int(minutes) + 1, max(1, int(minutes) // 5)):
        out.append(f'<text x="{across(minute):.1f}" y="{bottom + 14}" class="minute">{minute} min</text>')
    # Drawn from the last line to the first, so that the lower areas of a stack cover the higher ones.
    for index, (_, points) in reversed(list(enumerate(lines))):
        path = "L".join(f"{across(at):.1f} {up(value):.1f}" for at, value in points)
        if is_stacked:
            corners = f"V{bottom}H{across(points[0][0]):.1f}Z"
            out.append(f'<path d="M{path}{corners}" fill="{COLOURS[index % len(COLOURS)]}"/>')
        dashes = ' stroke-dasharray="4 2"' if index >= len(COLOURS) else ""
        out.append(f'<path d="M{path}" stroke="{COLOURS[index % len(COLOURS)]}"{dashes} class="line"/>')
    for number, row in enumerate(rows):
        at = left
        for index, name in row:
            height = bottom + 14 + LEGEND_LINE * (number + 1)
            out.append(f'<path d="M{at} {height - 3.5}h12" stroke="{COLOURS[index % len(COLOURS)]}" class="line"/>')
            out.append(f'<text x="{at + 16}" y="{height}" class="name">{html.escape(name)}</text>')
            at += legend_width(name)
    return out


def legend_width(name):
    return 28 + 5.6 * len(name)


def legend_rows(names):
    rows, width = [], math.inf
    for index, name in enumerate(names):
        if width + legend_width(name) > WIDTH - LEFT:
            rows.append([])
            width = 0
        rows[-1].append((index, name))
        width += legend_width(name)
    return rows


def picture(address, minutes, dashboard):
    panels = [panel for panel in dashboard["panels"] if panel["type"] == "timeseries"]
    height = TITLE + HEIGHT * math.ceil(len(panels) / COLUMNS)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * COLUMNS}" height="{height}" font-family="sans-serif">',
        "<style>.title{font-size:13px;font-weight:bold}.value{font-size:10px;text-anchor:end;fill:#555}"
        ".minute{font-size:10px;text-anchor:middle;fill:#555}.name{font-size:10.5px}.grid{stroke:#e2e2e2}"
        ".line{fill:none;stroke-width:1.6}</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="14" y="29" font-size="20">{html.escape(dashboard["title"])}</text>',
    ]
    role_at = roles(address)
    for index, panel in enumerate(panels):
        lines = []
        for target in panel["targets"]:
            found = ask(address, target["expr"], minutes)
            lines += [(named(target["legendFormat"], labels, role_at), points) for labels, points in found if points]
        x, y = WIDTH * (index % COLUMNS), TITLE + HEIGHT * (index // COLUMNS)
        out += drawn(panel, lines, minutes, x, y)
    return "\n".join([*out, "</svg>", ""])


def main():
    address, minutes, folder, *dashboards = sys.argv[1:]
    for path in map(pathlib.Path, dashboards):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        drawing = pathlib.Path(folder) / f"{path.stem}.svg"
        drawing.write_text(picture(address, float(minutes), dashboard), encoding="utf-8")
        print(f"wrote {drawing.name}")


main()
