"""Export: from a trained model to a folder that a stock server loads."""

from keras_attention.export.folder import versions
from keras_attention.export.savedmodel import export_for_serving

__all__ = ["export_for_serving", "versions"]
