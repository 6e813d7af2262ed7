"""The formats of checkpoints: a door to those parts of `mha_lib.convert`."""

from mha_lib.convert import FORMATS, Format, OtherNamesError, Projection, Weights

__all__ = ["FORMATS", "Format", "OtherNamesError", "Projection", "Weights"]
