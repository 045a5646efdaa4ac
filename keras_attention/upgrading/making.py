"""Makes a layer again as saving and loading would: configuration, shapes."""

from __future__ import annotations

import inspect
import tempfile
import warnings

import keras

from keras_attention.upgrading.members import members_of


def from_config(layer):
    """Returns a new layer by the configuration of another."""
    config = layer.get_config()
    if type(layer) is keras.layers.Lambda:
        # The function comes from this process, not from a file.
        return keras.layers.Lambda.from_config(config, safe_mode=False)
    parameters = inspect.signature(type(layer).__init__).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        # A constructor without these arguments was called without them: the
        # name and the flag are carried over later.
        for name in {"name", "trainable", "dtype"} - parameters.keys():
            config.pop(name, None)
    return type(layer).from_config(config)


def build(new, layer):
    """Builds a layer as the other was built, if it was."""
    # Without a `build` of its own, a layer is built when the copy calls it.
    lazy = type(new).build is keras.layers.Layer.build
    if not layer.built or (lazy and not isinstance(new, keras.Model)):
        return
    config = layer.get_build_config()
    if config and not new.built:
        with warnings.catch_warnings():
            # A model that Keras cannot build gets its members built.
            warnings.filterwarnings("ignore", ".* cannot be built automat")
            new.build_from_config(config)


def build_members(new, layer):
    """Builds what is left inside a copy as it was built in the original."""
    pairs = zip(members_of(new), members_of(layer), strict=False)
    for its_copy, member in pairs:
        if not its_copy.built:
            build(its_copy, member)
            build_members(its_copy, member)


def carry_assets(new, layer):
    """Carries vocabularies, of a layer and of those inside it."""
    if type(new) is not type(layer):
        return
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            new.load_assets(folder)
    for pair in zip(members_of(new), members_of(layer), strict=False):
        carry_assets(*pair)
