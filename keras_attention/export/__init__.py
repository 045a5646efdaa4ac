"""Export: from a trained model to a folder that a stock server loads."""

from keras_attention.export.checks import check
from keras_attention.export.client import Client
from keras_attention.export.folder import versions
from keras_attention.export.generator import export_generator
from keras_attention.export.report import Report
from keras_attention.export.savedmodel import export_for_serving
from keras_attention.export.transport import ServerError

__all__ = [
    "Client",
    "Report",
    "ServerError",
    "check",
    "export_for_serving",
    "export_generator",
    "versions",
]
