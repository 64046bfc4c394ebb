"""Feature flags through OpenFeature."""

from sage_server.adapters.flags.evaluation import OpenFeatureFlags

__all__ = ["OpenFeatureFlags"]
