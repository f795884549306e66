"""values.yaml, values.schema.json and the README say the same."""

import json
import re
import unittest

import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

import chart
import values_table
from chart import CHART, ROOT

TEXT = (CHART / "values.yaml").read_text()


class Values(unittest.TestCase):
    def test_the_table_of_the_readme_is_that_of_the_file(self):
        old = values_table.README.read_text()
        self.assertEqual(values_table.readme(old, values_table.table(TEXT)), old,
                         "run tests/deploy/values_table.py --write")

    def test_every_value_has_a_meaning(self):
        self.assertEqual([name for name, _, meaning in values_table.rows(TEXT) if not meaning.endswith(".")], [])
        with self.assertRaises(values_table.Undocumented):
            values_table.rows("a: 1\n")

    def test_the_schema_knows_every_value_and_no_others(self):
        schema = json.loads((CHART / "values.schema.json").read_text())

        def compare(values, schema, path):
            schema = schema["definitions"][schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
            if "properties" not in schema or not isinstance(values, dict):
                return
            if path not in ("executor.updateStrategy.", "scheduler.resources.", "executor.resources.", "pipelineDefaults.resources."):
                self.assertEqual(schema["properties"].keys() - {"global"}, values.keys(), path)
                self.assertIs(schema["additionalProperties"], False, path)
            for key, value in values.items():
                compare(value, with_definitions(schema["properties"][key]), f"{path}{key}.")

        def with_definitions(part):
            return part | {"definitions": schema["definitions"]}

        compare(yaml.safe_load(TEXT), schema, "")

    def test_examples_in_the_documentation_render(self):
        found = 0
        for path in (ROOT / "docs/kubernetes.md", CHART / "README.md"):
            for block in re.findall(r"(?ms)^```yaml\n(.*?)^```$", path.read_text()):
                example = yaml.safe_load(block)
                if "apiVersion" not in example:
                    with self.subTest(file=path.name, example=block):
                        below = {} if "storage" in example else chart.values("minimal")
                        self.assertTrue(chart.documents(chart.over(below, example)))
                    found += 1
        self.assertGreaterEqual(found, 3)

    def test_yaml_is_tidy(self):
        config = YamlLintConfig("{extends: default, rules: {line-length: {max: 200}, document-start: disable, "
                                "braces: {max-spaces-inside: 1}, comments: {min-spaces-from-content: 1}}}")
        for path in (CHART / "values.yaml", CHART / "Chart.yaml"):
            self.assertEqual([str(p) for p in linter.run(path.read_text(), config)], [], path.name)

    def test_versions_are_those_of_the_workspace(self):
        workspace = (ROOT / "Cargo.toml").read_text()
        version = workspace.split('[workspace.package]\nversion = "')[1].split('"')[0]
        self.assertEqual(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"], version)


if __name__ == "__main__":
    unittest.main()
