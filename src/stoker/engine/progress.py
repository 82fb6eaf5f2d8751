"""What a run tells whoever watches it. The command shows a bar or lines; a test or a notebook may stay silent."""

from typing import Protocol

from stoker.core.record import EvalLine, SaveLine, StepLine


class Progress(Protocol):
    """Receives a run's events, in order, from the thread that trains."""

    def notice(self, text: str) -> None:
        """One line worth reading, in the user's language."""

    def start(self, *, total_steps: int, done_steps: int, unit: str) -> None:
        """Training begins; `unit` is what throughput counts: samples or tokens."""

    def step(self, line: StepLine, *, total_steps: int) -> None:
        """A logged step."""

    def phase(self, name: str, done: int, total: int) -> None:
        """Work between steps (evaluation, saving), `done` of `total`."""

    def evaluated(self, line: EvalLine) -> None: ...

    def saved(self, line: SaveLine) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Progress that nobody watches."""

    def notice(self, text: str) -> None: ...

    def start(self, *, total_steps: int, done_steps: int, unit: str) -> None: ...

    def step(self, line: StepLine, *, total_steps: int) -> None: ...

    def phase(self, name: str, done: int, total: int) -> None: ...

    def evaluated(self, line: EvalLine) -> None: ...

    def saved(self, line: SaveLine) -> None: ...

    def close(self) -> None: ...
