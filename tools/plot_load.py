#!/usr/bin/env python3
"""Draws runs of `churon bench --load` as SVG. Standard library only.

    plot_load.py stall RECORDS.jsonl -o FILE.svg      (--scenario stall --records RECORDS.jsonl)
        each event of the chat as a bar as high as the wait before it, over time; the long prompt's stay shaded
    plot_load.py knee RESULT.json -o FILE.svg         (--find-knee --json >RESULT.json)
        goodput over the rate that was offered, one line for each server

--names A,B: what the servers are called, in order (default: their URLs)."""

import argparse
import html
import json
import math
import sys

W, H = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
COLORS = ["#1f6feb", "#d1622b", "#2f9e44", "#8250df"]


class Svg:
    def __init__(self, height=H):
        self.parts, self.height = [], height

    def add(self, text):
        self.parts.append(text)

    def line(self, x1, y1, x2, y2, color, width=1, extra=""):
        self.add(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{color}" stroke-width="{width}" {extra}/>')

    def text(self, x, y, text, anchor="middle", color="#57606a", weight="normal"):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" font-weight="{weight}">'
                 f"{html.escape(text)}</text>")

    def path(self, points, color, width=1.5):
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.add(f'<path d="{d}" fill="none" stroke="{color}" stroke-width="{width}"/>')

    def write(self, path):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {self.height}" font-family="sans-serif" font-size="12">'
                f'<rect width="{W}" height="{self.height}" fill="#fff"/>')
        with open(path, "w", encoding="utf-8") as f:
            f.write(head + "\n".join(self.parts) + "</svg>\n")


def short(v):
    return f"{v:g}" if v < 1000 else f"{v:,.0f}"


def ticks(top, n=5):
    """About n round numbers from 0 to top."""
    raw = top / n
    unit = 10 ** math.floor(math.log10(raw))
    step = next(s * unit for s in (1, 2, 5, 10) if s * unit >= raw)
    return [i * step for i in range(int(top / step) + 1)]


def stall_panel(svg, y0, run, name, color, seconds, top):
    """One chat: milliseconds on a logarithmic axis from 1 to `top`."""
    height = H - TOP - BOTTOM
    x = lambda t: LEFT + t / seconds * (W - LEFT - RIGHT)
    y = lambda ms: y0 + TOP + height * (1 - math.log10(max(ms, 1)) / math.log10(top))
    begin, first = x(run["long_sent_s"]), x(run["long_first_s"])
    svg.add(f'<rect x="{begin:.1f}" y="{y0 + TOP}" width="{max(first - begin, 1):.1f}" height="{height}" fill="#ffe8b3"/>')
    for ms in (10 ** k for k in range(int(math.log10(top)) + 1)):
        svg.line(LEFT, y(ms), W - RIGHT, y(ms), "#d0d7de")
        svg.text(LEFT - 6, y(ms) + 4, f"{ms:g}", "end")
    for t in ticks(seconds, 8):
        svg.text(x(t), y0 + H - BOTTOM + 16, short(t))
    bars = [(b, (b - a) * 1e3) for a, b in zip(run["stamps_s"], run["stamps_s"][1:]) if b <= seconds]
    svg.add(f'<path d="{"".join(f"M{x(t):.1f} {y(1):.1f}V{y(ms):.1f}" for t, ms in bars)}" stroke="{color}"/>')
    worst = max((ms for t, ms in bars if t > run["long_sent_s"]), default=0)
    svg.text(LEFT, y0 + 20, f"{name}: longest gap {worst:,.0f} ms; the prompt of {run['long_tokens']:,} tokens waits "
             f"{(run['long_first_s'] - run['long_sent_s']) * 1e3:,.0f} ms (shaded)", "start", "#1f2328", "bold")
    svg.text(W / 2, y0 + H - 10, "seconds since the chat began; height: milliseconds since its token before")


def draw_stall(rows, names, out):
    """The last run of each server."""
    runs = {}
    for row in rows:
        if "long_sent_s" not in row:
            sys.exit("stall: expected records of --scenario stall, got others")
        runs[row["target"]] = row
    seconds = max(r["stamps_s"][-1] for r in runs.values()) * 1.02
    longest = max(b - a for r in runs.values() for a, b in zip(r["stamps_s"], r["stamps_s"][1:]))
    top = 10 ** math.ceil(math.log10(max(longest * 1e3, 10)))
    svg = Svg(H * len(runs))
    for i, (target, run) in enumerate(runs.items()):
        stall_panel(svg, i * H, run, names[i] if i < len(names) else target, COLORS[i % len(COLORS)], seconds, top)
    svg.write(out)


def draw_knee(result, names, out):
    targets = result["targets"]
    if any("knee" not in t for t in targets):
        sys.exit("knee: expected the result of --find-knee, got another")
    steps = [s for t in targets for s in t["knee"]["steps"]]
    right, top = max(s["rate"] for s in steps) * 1.05, max(s["goodput_per_s"] for s in steps) * 1.1 or 1
    svg = Svg()
    x = lambda v: LEFT + v / right * (W - LEFT - RIGHT)
    y = lambda v: TOP + (H - TOP - BOTTOM) * (1 - v / top)
    for v in ticks(top):
        svg.line(LEFT, y(v), W - RIGHT, y(v), "#d0d7de")
        svg.text(LEFT - 6, y(v) + 4, f"{v:g}", "end")
    for v in ticks(right, 8):
        svg.text(x(v), H - BOTTOM + 16, f"{v:g}")
    end = min(right, top)
    svg.line(x(0), y(0), x(end), y(end), "#8c959f", 1, 'stroke-dasharray="4 4"')
    for i, t in enumerate(targets):
        color, points = COLORS[i % len(COLORS)], sorted((s["rate"], s["goodput_per_s"]) for s in t["knee"]["steps"])
        svg.path([(x(a), y(b)) for a, b in points], color)
        for a, b in points:
            svg.add(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{color}"/>')
        knee = t["knee"]["rate"]
        if knee:
            svg.line(x(knee), y(0), x(knee), y(top), color, 1, 'stroke-dasharray="2 3"')
        name = names[i] if i < len(names) else t["url"]
        svg.text(LEFT + 10, TOP + 14 + 16 * i, f"{name}: knee at {knee:.2f} requests/s", "start", color, "bold")
    svg.text(W / 2, H - 10, "requests/s offered (dashed: all of them good)")
    svg.text(LEFT - 50, 20, "good requests/s", "start")
    svg.write(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["stall", "knee"])
    parser.add_argument("file")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--names", default="")
    a = parser.parse_args()
    names = a.names.split(",") if a.names else []
    with open(a.file, encoding="utf-8") as f:
        if a.what == "stall":
            draw_stall([json.loads(line) for line in f], names, a.output)
        else:
            draw_knee(json.load(f), names, a.output)


main()
