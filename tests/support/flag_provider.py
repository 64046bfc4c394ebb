"""An OpenFeature provider as an operator might plug one in; `SAGE_FLAG_PROVIDER` names its functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ProviderFatalError
from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType
from openfeature.provider import AbstractProvider, Metadata

PLUGGED = "support.flag_provider:everything_off"
RAISING = "support.flag_provider:nothing_works"
NEVER_READY = "support.flag_provider:never_ready"
WRONG_TYPE = "support.flag_provider:no_boolean"


class Provider(AbstractProvider):
    """Answers every question with one value, and remembers the questions."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[tuple[str, EvaluationContext | None]] = []

    def get_metadata(self) -> Metadata:
        return Metadata("somebody else's")

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        self.asked.append((flag_key, evaluation_context))
        if isinstance(self.answer, Exception):
            raise self.answer
        return FlagResolutionDetails(self.answer)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        _unasked()

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        _unasked()

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        _unasked()

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        _unasked()


class Broken(Provider):
    """One that cannot start."""

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        raise ProviderFatalError("no network")


made: list[Provider] = []
"""Those that servers have made, the newest last."""


def everything_off() -> Provider:
    return _kept(Provider(answer=False))


def nothing_works() -> Provider:
    return _kept(Provider(ValueError("no network")))


def no_boolean() -> Provider:
    return _kept(Provider("off"))


def never_ready() -> Provider:
    return _kept(Broken(answer=False))


def _kept(provider: Provider) -> Provider:
    made.append(provider)
    return provider


def _unasked() -> NoReturn:
    raise AssertionError("Sage's flags are on or off")
