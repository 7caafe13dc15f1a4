"""Runs and tables as HTML, for notebooks.

A run may come from another host, so every text is escaped and cut.
"""

from __future__ import annotations

import html
import unicodedata
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from irqlab._manifest import Column
    from irqlab._run import Run
    from irqlab._table import Table

ROWS_MAX: Final = 20
"""How many rows of a table are shown."""

_TEXT_CHARACTERS_MAX: Final = 120
_ABSENT: Final = "–"
_BELOW_LIMIT: Final = "below the limit"


def run_html(run: Run) -> str:
    """What was measured where, the warnings, and the tables."""
    parts = [f"<p><b>irqlab {_text(run.experiment)}</b> on {_text(run.bench)}"]
    parts.append(f", {_text(run.started_utc)}: <code>{_text(str(run.path))}</code>")
    host = [run.host.get(key) for key in ("cpu_model", "kernel")]
    if named := ", ".join(_text(value) for value in host if isinstance(value, str)):
        parts.append(f"<br>{named}")
    if not run.complete:
        parts.append("<br><b>cut short</b>: the tables hold what was measured until then")
    parts.append("</p>")
    if run.warnings:
        items = "".join(f"<li>{_text(warning)}</li>" for warning in run.warnings)
        parts.append(f"<p>Warnings:</p><ul>{items}</ul>")
    rows = [[_text(name), str(len(table)), _text(table.title)] for name, table in run.items()]
    parts.append(_grid(["table", "rows", "what a row is"], rows, {1}))
    return "".join(parts)


def table_html(table: Table) -> str:
    """The first rows, with intervals in the cells of their numbers."""
    completing = {name for column in table.columns for name in column.completing}
    columns = [column for column in table.columns if column.name not in completing]
    cells = []
    for row in table.arrow.slice(0, ROWS_MAX).to_pylist():
        cells.append([_cell(column, row) for column in columns])
    numbers = {place for place, column in enumerate(columns) if column.kind not in ("text", "bool")}
    parts = [f"<p><b>{_text(table.name)}</b>: {_text(table.title)}</p>"]
    parts.append(_grid([_text(column.name) for column in columns], cells, numbers))
    if len(table) > ROWS_MAX:
        parts.append(f"<p>{ROWS_MAX} of {len(table)} rows; <code>.pandas()</code> has all</p>")
    return "".join(parts)


def _cell(column: Column, row: dict[str, Any]) -> str:
    """The number of a row with what completes it, as a terminal shows it."""
    value = row[column.name]
    text = _value(value)
    if value is None:
        return text
    half = row.get(column.half_width) if column.half_width else None
    if column.half_width and column.below_limit and row.get(column.below_limit):
        upper = value + half if half is not None else 0
        return html.escape(f"< {_number(upper)}" if upper > 0 else _BELOW_LIMIT)
    if column.bound and row.get(column.bound.flag):
        return f"{_text(column.bound.sign)} {text}"
    if column.up_to:
        high = row.get(column.up_to)
        return f"{text} to {'?' if high is None else _value(high)}"
    return text if half is None else f"{text} ± {_number(half)}"


def _value(value: Any) -> str:
    if value is None:
        return _ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _text(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _text(text: str) -> str:
    """The text without control characters, cut and escaped."""
    cut = text if len(text) <= _TEXT_CHARACTERS_MAX else text[: _TEXT_CHARACTERS_MAX - 1] + "…"
    kept = "".join("�" if unicodedata.category(sign)[0] == "C" else sign for sign in cut)
    return html.escape(kept)


def _grid(heads: list[str], rows: list[list[str]], numbers: set[int]) -> str:
    """A table that scrolls sideways. `numbers`: the columns that are aligned to the right."""
    align = ["right" if place in numbers else "left" for place in range(len(heads))]

    def line(tag: str, cells: list[str]) -> str:
        pairs = zip(align, cells, strict=True)
        return "".join(f'<{tag} style="text-align:{side}">{cell}</{tag}>' for side, cell in pairs)

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{line('th', heads)}</tr></thead>"
    return f'<div style="overflow-x:auto"><table>{head}<tbody>{body}</tbody></table></div>'
