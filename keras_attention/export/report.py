"""What a check found, for people and for programs."""

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of one check.

    Attributes:
        name: What was checked.
        status: `"pass"`, `"warn"`, `"fail"` or `"skip"`.
        detail: What was seen.
        advice: What to do about it; empty where there is nothing to do.
    """

    name: str
    status: str
    detail: str
    advice: str = ""


@dataclasses.dataclass
class Report:
    """All checks of one version folder.

    Attributes:
        path: The folder.
        runtime: What ran the model.
        results: List of `Result`, in the order of the checks.
    """

    path: str
    runtime: str = ""
    results: list[Result] = dataclasses.field(default_factory=list)

    @property
    def ok(self):
        """Whether no check failed."""
        return all(result.status != "fail" for result in self.results)

    @property
    def failures(self):
        """Names of the failed checks."""
        return [r.name for r in self.results if r.status == "fail"]

    def add(self, name, status, detail, advice=""):
        """Appends a result."""
        self.results.append(Result(name, status, detail, advice))

    def to_json(self):
        """Returns the report as JSON text."""
        content = {"ok": self.ok, **dataclasses.asdict(self)}
        return json.dumps(content, indent=2)

    def __str__(self):
        lines = [f"{self.path} ({self.runtime})"]
        for result in self.results:
            lines.append(f"{result.status:4}  {result.name}: {result.detail}")
            if result.advice:
                lines.append(f"      -> {result.advice}")
        return "\n".join(lines)
