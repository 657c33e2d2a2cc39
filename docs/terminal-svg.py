#!/usr/bin/env python3
"""Turns a terminal's content (`tmux capture-pane -e -p`, on standard input) into an SVG picture (on standard output).

usage: tmux capture-pane -e -p -t SESSION | docs/terminal-svg.py TITLE > docs/picture.svg
"""
import html
import re
import sys

CELL_W, CELL_H, PAD, TOP = 8.4, 18, 16, 44
PALETTE = ["#2e3440", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
           "#6b7280", "#f08a93", "#b5e08f", "#f2d08a", "#82c4ff", "#d99af0", "#7fd4df", "#ffffff"]
TEXT, GROUND = "#d8dee9", "#1b1f27"


def colour(n):
    """Colour n of the 256-colour table."""
    if n < 16:
        return PALETTE[n]
    if n >= 232:
        return "#" + f"{8 + 10 * (n - 232):02x}" * 3
    n -= 16
    return "#" + "".join(f"{0 if c == 0 else 55 + 40 * c:02x}" for c in (n // 36, n // 6 % 6, n % 6))


def runs(line):
    """Yields (column, text, colour, bold, dim) for each stretch of one style."""
    style, column = {"fg": TEXT, "bold": False, "dim": False}, 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            codes = [int(c or 0) for c in part[2:-1].split(";")]
            while codes:
                code = codes.pop(0)
                if code == 0:
                    style = {"fg": TEXT, "bold": False, "dim": False}
                elif code == 1:
                    style["bold"] = True
                elif code == 2:
                    style["dim"] = True
                elif code == 22:
                    style["bold"] = style["dim"] = False
                elif 30 <= code <= 37:
                    style["fg"] = PALETTE[code - 30]
                elif 90 <= code <= 97:
                    style["fg"] = PALETTE[code - 82]
                elif code == 39:
                    style["fg"] = TEXT
                elif code == 38 and codes[:1] == [5]:
                    style["fg"] = colour(codes[1])
                    codes = codes[2:]
                elif code == 38 and codes[:1] == [2]:
                    style["fg"] = "#{:02x}{:02x}{:02x}".format(*codes[1:4])
                    codes = codes[4:]
        elif part:
            yield column, part, style["fg"], style["bold"], style["dim"]
            column += len(part)


def main():
    title = sys.argv[1] if len(sys.argv) > 1 else ""
    lines = [line.rstrip() for line in sys.stdin.read().split("\n")]
    while lines and not re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).strip():
        lines.pop()
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    width = max(map(len, plain), default=40) * CELL_W + 2 * PAD
    height = len(lines) * CELL_H + TOP + PAD
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
           f"<title>{html.escape(title)}</title>",
           f'<rect width="100%" height="100%" rx="10" fill="{GROUND}"/>']
    for i, dot in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        out.append(f'<circle cx="{PAD + 6 + 20 * i}" cy="20" r="6" fill="{dot}"/>')
    out.append('<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14" xml:space="preserve">')
    for row, line in enumerate(lines):
        for column, text, fill, bold, dim in runs(line):
            if not text.strip():
                continue
            attributes = f' font-weight="bold"' * bold + f' opacity="0.6"' * dim
            out.append(f'<text x="{PAD + column * CELL_W:.1f}" y="{TOP + row * CELL_H + 13}" fill="{fill}"{attributes}'
                       f' textLength="{len(text) * CELL_W:.1f}" lengthAdjust="spacingAndGlyphs">{html.escape(text)}</text>')
    out.append("</g></svg>")
    print("\n".join(out))


main()
