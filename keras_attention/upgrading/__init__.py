"""Puts the layers of this package into models made without it."""

from keras_attention.upgrading.report import Change, Note, UpgradeReport
from keras_attention.upgrading.upgrade import upgrade

__all__ = ["Change", "Note", "UpgradeReport", "upgrade"]
