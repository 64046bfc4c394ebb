"""Sage's own flags, as an OpenFeature provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn
from uuid import UUID

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import FlagNotFoundError, TypeMismatchError
from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
from openfeature.provider import AbstractProvider, Metadata

from sage_server.domain.flags import Feature
from sage_server.ports.flag_store import FlagSource

SCOPE = "scope"
"""The metadata of an answer that names the deciding level: `global`, `tenant` or `user`."""
_FEATURES = {feature.value: feature for feature in Feature}
_METADATA = Metadata("sage")


class SageProvider(AbstractProvider):
    """Answers from memory. The targeting key is the id of a user who was prepared at the source; without one
    it answers for nobody in particular. The reason is DEFAULT where nothing is set.
    """

    def __init__(self, source: FlagSource) -> None:
        super().__init__()
        self._source = source

    def get_metadata(self) -> Metadata:
        """Its name."""
        return _METADATA

    def resolve_boolean_details(
        self,
        flag_key: str,
        default_value: bool,  # noqa: ARG002, FBT001 (defaults are the domain's)
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[bool]:
        """What holds, and the deciding level in the metadata."""
        feature = _FEATURES.get(flag_key)
        if feature is None:
            raise FlagNotFoundError
        user = evaluation_context.targeting_key if evaluation_context is not None else None
        state = self._source.decide(None if user is None else UUID(user), feature)
        if state.scope is None:
            return FlagResolutionDetails(state.enabled, reason=Reason.DEFAULT)
        scope = state.scope.name.lower()
        return FlagResolutionDetails(
            state.enabled, reason=Reason.TARGETING_MATCH, flag_metadata={SCOPE: scope}
        )

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        """There is none."""
        _refuse(flag_key, default_value, evaluation_context)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        """There is none."""
        _refuse(flag_key, default_value, evaluation_context)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        """There is none."""
        _refuse(flag_key, default_value, evaluation_context)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        """There is none."""
        _refuse(flag_key, default_value, evaluation_context)


def _refuse(_flag_key: str, _default_value: object, _context: EvaluationContext | None) -> NoReturn:
    raise TypeMismatchError("Sage's flags are on or off")
