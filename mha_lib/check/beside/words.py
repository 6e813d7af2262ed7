"""What is noted about a submission: codes, the words of our advice, errors."""

import dis
import inspect
import os
import traceback
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn

TORCH = str(Path(torch.__file__).parent) + os.sep
NOT_THEIRS = (str(Path(torch.__file__).parents[1]), inspect.__file__[:-10])
NOT_THEIRS += (str(Path(__file__).parents[2]) + os.sep,)  # mha_lib
DRIVER = str(Path(__file__).with_name("driven.py"))  # what it raises is our advice
RAN_WITH = "ran-with"  # code of a note: in what way it was called
REMEMBERS = "remembers"  # and of another: a call changes the next one
MAKES_LAYERS = "makes-layers"  # and of another: each call makes layers anew
REORDERED = "reordered"  # and of one that names its arguments in another order
CHOSEN_DROPOUT = "chosen-dropout"  # of one that has a dropout by choice, if any
RETURNED = "returned"  # and of one that returns no tensor and no pair
RESHAPED = "reshaped"  # and of one that gives an input another shape
SQUARE_MASK = "square-mask"  # and of an error
NO_MASK = "no-mask"  # and of another
OTHER_SHAPE = "weights-of-another-shape"  # and of a third
UNFINISHED = "unfinished"  # and of a fourth, and of a note

ADVICE = {  # what to do, by the code of the error
    "unknown-heads": "the number of heads must be known; your module shows {found} in "
    "an attribute like num_heads. Pass num_heads=… or the class instead of the module",
    "wrong-heads": "the number of heads must be from 1 to {E}, the width; got {H}",
    "scripted": "what torch.jit.script returns cannot be given other weights. Pass the "
    "module that it was made of",
    "lazy": "call your module once before it is checked: it has lazy layers",
    "layers-not-found": "the weights of q, k, v and the output must be found by name "
    "(q_proj, k_proj, v_proj, out_proj, or a fused qkv); found {found}. Say which is "
    'which with layers={{"q": "…", "k": "…", "v": "…", "o": "…"}} (or "qkv" for a '
    'fused one, "kqv" if its rows lie in that order)',
    "one-layer-for-two": "{names} are one and the same layer: each needs a layer of "
    "its own, a new nn.Linear",
    "layers-misnamed": "layers names {wrong}; your module has {found}",
    "computed-weights": "{path} computes its weights from others, so that none can be "
    "loaded. Check the layer without it (a spectral norm, say; see "
    "torch.nn.utils.parametrize.remove_parametrizations)",
    "layers-hidden": "self.{name} is a plain {kind}, which hides its layers from "
    "parameters() and state_dict(): nothing would train or save them. Make it "
    "nn.{cure}",
    "one-layer-for-all": "self.{name} holds one and the same layer {times} times, so "
    "that all heads have the same weights: make a new one each time, "
    "[… for _ in range(num_heads)]",
    OTHER_SHAPE: "`{name}` must have the shape {axes} = {required}; yours has {got}",
    "wide-kernel": "the kernel of {path} must be 1, as a projection sees one token at "
    "a time; yours is {kernel} wide",
    "wants-more": "{name} must be made as {name}(embed_dim, num_heads); it also wants "
    "{wants!r}. Pass a module that you made, or give the parameter a default",
    "not-made": "{name}({given}) could not be made: {error}",
    UNFINISHED: "{name} is not finished: {what}. Write that part, run its cell, then "
    "check again",
    "no-class": "of what class yours is cannot be told: its __class__ raises {error}",
    "not-callable": "a function, a class or a module is required; got {got}",
    SQUARE_MASK: "causal_mask must take T and S; this one takes T alone",
    NO_MASK: "{name} takes no mask: add mask=None to its arguments and, where a mask "
    "is given, hide the scores of the keys for which it is False",
    "nothing-returned": "a torch.Tensor must be returned; got None; is a `return` "
    "missing?",
    "no-tensor-beside": "the weights beside the output must be one torch.Tensor; got "
    "{got}. Of a list with a map (B, T, S) for each head, torch.stack(…, dim=1) makes "
    "(B, H, T, S)",
    "no-tensor": "a torch.Tensor must be returned; got {got}",
    "not-dense": "a dense torch.Tensor must be returned; got another layout",
    "which-output": "the output must be returned, or (output, weights); which of "
    "{names} is the output? Call it output",
    "other-device": "what is returned must be on {required}, as the inputs; got {got}",
}


class Advice(Exception):
    """The submission cannot be called as it is: a code of `ADVICE`, and its values."""

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(ADVICE[code].format(**values))
        self.code = code

    @property
    def outcome(self) -> dict:
        """That of a probe which cannot be tried."""
        return {"error": str(self), "code": self.code}


def failure(error: BaseException) -> dict[str, str]:
    """What was raised, as data: the message, the line of the submission, by torch?"""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception may define its own __str__
        text = "it cannot be printed"
    kind, text = type(error).__name__, text[:300]
    frames = traceback.extract_tb(error.__traceback__)
    if not (text and frames[-1:] and frames[-1].filename == DRIVER and _raised(error)):
        text = f"{kind}: {text}" if text else kind
    found = {"error": text}
    walked = zip(traceback.walk_tb(error.__traceback__), frames)
    theirs = [x for x in walked if not x[1].filename.startswith(NOT_THEIRS)]
    if theirs:
        found["line"] = _line(theirs[-1][1])
    named = [x for x in theirs if not x[1].name.startswith("<")]  # no lambda, no loop
    if len(named) > 1:
        found["called"] = _line(named[0][1])
        found["got"] = _call(named[-1][0][0])
    if isinstance(error, RuntimeError) and _of_torch(error):
        found["raised_by"] = "torch"
    return found


def _line(frame: traceback.FrameSummary) -> str:
    """Its number and its text."""
    return f"{frame.lineno}: {frame.line}" if frame.line else f"{frame.lineno}"


def _call(frame: FrameType) -> str:
    """How a function was called: the shapes of tensors, and whole numbers.

    What it binds anew is left out: nothing tells any more what came.
    """
    code, here = frame.f_code, frame.f_locals
    stored = [x.argval for x in dis.get_instructions(code) if "STORE_" in x.opname]
    again = {name for x in stored for name in (x if isinstance(x, tuple) else (x,))}
    came = []
    for name in code.co_varnames[: code.co_argcount]:
        x = here.get(name)
        if name in again or type(x) not in (Tensor, nn.Parameter, int):
            continue
        came.append(f"{name}={x if isinstance(x, int) else (*x.shape,)}")
    return f"{code.co_name}({', '.join(came)})"


def _of_torch(error: BaseException) -> bool:
    """Whether no `raise` or `assert` outside torch made it: an operation did."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and (
        not _raised(error) or frames[-1].filename.startswith(TORCH)
    )


def _raised(error: BaseException) -> bool:
    """Whether a `raise` or an `assert` made it, no operation."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    code = b"" if last is None else last.tb_frame.f_code.co_code
    return bool(code) and dis.opname[code[last.tb_lasti]] == "RAISE_VARARGS"


def located(error: str, line: str = "") -> str:
    """The message and the line of the submission where it arose, in one sentence."""
    return f"{error} (your line {line})" if line else error
