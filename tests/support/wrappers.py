"""Layers and models of a user, with layers of the package inside.

None passes `training` on, or says how it is built, unless that is its point.
All are called with a dictionary of the inner layer's arguments, since a
user's layer has no other way to take a structure.
"""

import inspect

import keras
from support.catalogue import LAYERS

_register = keras.saving.register_keras_serializable(package="user")


class _Wrapper(keras.layers.Layer):
    """A layer that makes its inner layer of the catalogue's arguments."""

    def __init__(self, case, **kwargs):
        super().__init__(**kwargs)
        self.case = case
        self.inner = LAYERS[case].make(name="inner")

    def call(self, inputs):
        return self.inner(**inputs)

    def get_config(self):
        return {**super().get_config(), "case": self.case}


@_register
class Lazy(_Wrapper):
    """Calls `super().build` and leaves the inner layer unbuilt."""

    def build(self, input_shape):
        super().build(input_shape)


@_register
class Proper(_Wrapper):
    """Builds the inner layer, as Keras asks."""

    def build(self, input_shape):
        LAYERS[self.case].build(self.inner)


@_register
class Explicit(_Wrapper):
    """Passes `training` on by hand."""

    def call(self, inputs, training=None):
        if _takes_training(self.inner):
            return self.inner(**inputs, training=training)
        return self.inner(**inputs)


@_register
class Deep(_Wrapper):
    """Holds the inner layer two levels down, in a list and by name."""

    def __init__(self, case, **kwargs):
        super().__init__(case, **kwargs)
        self.inner = [Lazy(case, name="a"), Proper(case, name="b")]

    def call(self, inputs):
        return [layer(inputs) for layer in self.inner]


@_register
class Nested(_Wrapper):
    """Holds layers in lists of lists, one of them under a second name."""

    def __init__(self, case, **kwargs):
        super().__init__(case, **kwargs)
        self.inner = [[LAYERS[case].make(name="a")]]
        self.others = {"others": [LAYERS[case].make(name="b")]}
        self.again = self.inner[0][0]

    def call(self, inputs):
        layers = self.inner[0][0], self.others["others"][0], self.again
        return [layer(**inputs) for layer in layers]


@_register
class Network(keras.Model):
    """A subclassed model: one wrapped layer for each name in the inputs."""

    def __init__(self, cases, wrapper="Lazy", **kwargs):
        super().__init__(**kwargs)
        self.cases = list(cases)
        self.wrapper = wrapper
        wrap = WRAPPERS[wrapper]
        self.parts = [wrap(case, name=case) for case in self.cases]

    def call(self, inputs):
        return {part.case: part(inputs[part.case]) for part in self.parts}

    def get_config(self):
        config = {"cases": self.cases, "wrapper": self.wrapper}
        return {**super().get_config(), **config}


WRAPPERS = {
    wrapper.__name__: wrapper
    for wrapper in (Lazy, Proper, Explicit, Deep, Nested)
}


def _takes_training(layer):
    return "training" in inspect.signature(layer.call).parameters
