"""The table of values in the chart's README, made from the comments of values.yaml.

    values_table.py            # prints the table
    values_table.py --write    # puts it into the README

A comment that starts with `# --` right above a key documents it, with all that lies below it.
"""

import json
import sys

import yaml

from chart import CHART

README = CHART / "README.md"
START, END = "<!-- values: made by tests/deploy/values_table.py -->", "<!-- end of values -->"


class Undocumented(Exception):
    """A value without a comment."""


def rows(text):
    """(path, default, meaning) of each documented value, in the order of the file."""
    lines = text.splitlines()
    return list(below(yaml.compose(text), lines, ""))


def below(node, lines, path):
    for key, value in node.value:
        name = f"{path}{key.value}"
        meaning = comment(lines, key.start_mark.line)
        if meaning is not None:
            yield name, default(value), meaning
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from below(value, lines, f"{name}.")
        else:
            raise Undocumented(f"{name} has no comment `# -- ...` above it")


def comment(lines, line):
    above = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].strip().lstrip("#").strip())
    return " ".join(above).removeprefix("--").strip() if above and above[0].startswith("--") else None


def default(node):
    value = yaml.safe_load(yaml.serialize(node))
    return json.dumps(value, ensure_ascii=False) if value is not None else ""


def table(text):
    made = ["| value | default | meaning |", "| --- | --- | --- |"]
    for name, value, meaning in rows(text):
        shown = f"`{value}`" if value else ""
        made.append(f"| `{name}` | {shown} | {meaning} |".replace(" |  | ", " | | "))
        assert "|" not in name + value + meaning, f"{name}: no `|` in a table"
    return "\n".join(made)


def readme(old, made):
    before, rest = old.split(START)
    return f"{before}{START}\n{made}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    made = table((CHART / "values.yaml").read_text())
    if sys.argv[1:] == ["--write"]:
        README.write_text(readme(README.read_text(), made))
    else:
        print(made)
