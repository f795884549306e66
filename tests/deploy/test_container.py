"""The container file: what can be told without building it."""

import re
import tomllib
import unittest

import yaml

from chart import CHART, ROOT

FOLDER = ROOT / "deploy/container"
WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]


def instructions():
    """(name, rest) of each instruction, continued lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (FOLDER / "Containerfile").read_text())
    joined = re.sub(r"\\\n\s*", " ", text)
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


class Container(unittest.TestCase):
    def setUp(self):
        self.all = instructions()
        starts = [i for i, (name, _) in enumerate(self.all) if name == "FROM"]
        self.last = self.all[starts[-1]:]

    def test_the_image_runs_as_a_user_by_number_who_is_that_of_the_chart(self):
        user = next(rest for name, rest in self.last if name == "USER")
        context = yaml.safe_load((CHART / "values.yaml").read_text())["podSecurityContext"]
        self.assertEqual(user, f"{context['runAsUser']}:{context['runAsGroup']}")
        self.assertNotEqual(user.split(":")[0], "0")

    def test_the_last_stage_needs_no_shell(self):
        self.assertNotIn("RUN", [name for name, _ in self.last])
        for name, rest in self.last:
            if name in ("ENTRYPOINT", "CMD"):
                self.assertTrue(rest.startswith("["), rest)

    def test_the_build_is_locked_and_of_the_versions_of_the_workspace(self):
        (build,) = [rest for name, rest in self.all if name == "RUN"]
        self.assertIn("cargo build --release --locked -p windrow-cli", build)
        arguments = dict(rest.split("=", 1) for name, rest in self.all if name == "ARG" and "=" in rest)
        self.assertIn(f"rust:{WORKSPACE['package']['rust-version']}-", arguments["BUILD_IMAGE"])
        self.assertEqual(arguments["VERSION"], WORKSPACE["package"]["version"])

    def test_nothing_comes_from_elsewhere_and_nothing_secret_is_asked_for(self):
        for name, rest in self.all:
            self.assertNotEqual(name, "ADD")
            self.assertNotRegex(rest, r"(?i)https?://|curl|wget|secret|password|token|access_key")

    def test_the_sources_of_all_members_and_nothing_else_get_in(self):
        kept = (ROOT / ".containerignore").read_text()
        self.assertEqual((FOLDER / "Containerfile.dockerignore").read_text(), kept)
        lines = [line for line in kept.splitlines() if line and not line.startswith("#")]
        self.assertEqual(lines[0], "*")
        let_in = {line[1:] for line in lines if line.startswith("!")}
        self.assertEqual(let_in, {"Cargo.toml", "Cargo.lock", "LICENSE", *WORKSPACE["members"]})


if __name__ == "__main__":
    unittest.main()
