"""What answers while no language model is configured: rules, and no model at all."""

from __future__ import annotations

from sage_server.adapters.offline_model.model import OFFLINE_PROVIDER, OfflineModel, offline_models

__all__ = ["OFFLINE_PROVIDER", "OfflineModel", "offline_models"]
