"""Ways to attention that somebody else wrote: each ends in an error, none in points.

All of them use what is installed where the tests run; what is not installed is not
found, which is an error, too.
"""

from tests.grade.attacks.table import Attack, anywhere, called

BARE = """
import sys
from importlib.machinery import PathFinder
sys.meta_path[:] = [PathFinder]
sys.modules.pop("torch.nn.attention.flex_attention", None)
"""
SHARED = """
import torch
from torch.nn import functional as F
hidden = lambda mask: None if mask is None else torch.zeros(mask.shape).masked_fill(
    ~mask, -1e9)
def layer(make, q, k, v):
    m = make()
    return m(q[:, 0], k[:, 0], v[:, 0])[0][:, None]
"""
CLEARED = """
import gc
for name, module in list(sys.modules.items()):
    if name in ("inside.bans", "inside.packages", "torch.library"):
        for word, thing in list(vars(module).items()):
            if isinstance(thing, (dict, list, set)) and word != "__builtins__":
                thing.clear()
for thing in gc.get_objects():
    if type(thing) is torch.library.Library and thing.m is not None:
        thing.m.reset()
"""
CODE = """
import gc, types
global codes
if "codes" not in globals():  # it takes a second, and there are many probes
    gc.unfreeze()
    found = [x for x in gc.get_objects() if isinstance(x, types.FunctionType)]
    found += [x for f in found for x in gc.get_referents(f)]
    names = {"multi_head_attention_forward", "math_attention", "_forward_impl"}
    codes = {x for x in found if isinstance(x, types.CodeType) and x.co_name in names}
raise RuntimeError(f"found {sorted(x.co_name for x in codes)} in the end")
"""
SOURCE = """
import inspect, linecache, marshal, os
found = []
for module in ("nn/functional.py", "nn/modules/activation.py", "onnx/ops/_impl.py",
               "_higher_order_ops/flex_attention.py", "nn/attention/flex_attention.py",
               f"nn/modules/__pycache__/activation.{sys.implementation.cache_tag}.pyc"):
    path = os.path.join(os.path.dirname(torch.__file__), module)
    try:
        found.append(open(path, "rb").read(9))
    except OSError: pass
    try:
        found.append(os.open(path, os.O_RDONLY))
    except OSError: pass
    found += [x for x in linecache.getlines(path)
              if "softmax(attn_output" in x or "softmax(scores" in x]
for thing in (F.multi_head_attention_forward, torch.nn.MultiheadAttention.forward):
    try:
        text = inspect.getsource(thing)
        found += [text] if "softmax" in text else []
    except (OSError, TypeError, IndentationError): pass
raise RuntimeError(f"found {found} in the end")
"""
PACKAGES = """
found = []
for name in ("transformers", "x_transformers", "keras", "jax", "flax", "torchvision",
             "onnxruntime", "tensorflow", "xformers", "einx"):
    try:
        found.append(__import__(name))
    except (PermissionError, ModuleNotFoundError): pass
raise RuntimeError(f"found {found} in the end")
"""


def by(body: str, words: str = "not available", before: str = "") -> Attack:
    """Right in every number, if only somebody else's attention would answer."""
    attack = called(body, words)
    return Attack(f"{BARE}{SHARED}{before}{attack.source}", 1.0, words)


READY_MADE = {
    # --- torch's operators
    "the operator, tables cleared": by(
        "return F.scaled_dot_product_attention(q, k, v, mask)", before=CLEARED
    ),
    "the operator, of the C extension": by(
        "return torch._C._nn.scaled_dot_product_attention(q, k, v, mask)"
    ),
    "the operator, in TorchScript": by(
        "return script(q, k, v)",
        "operation failed",
        before="@torch.jit.script\ndef script(q, k, v):\n"
        "    return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n",
    ),
    "the operator, by the JIT's name": by(
        "op, _ = torch._C._jit_get_operation('aten::scaled_dot_product_attention')\n"
        "return op(q, k, v, mask)"
    ),
    "the operator, on other keys": by(
        """
op = torch.ops.aten._scaled_dot_product_attention_math.default
for key in torch._C.DispatchKey.__members__.values():
    try: return op.redispatch(torch._C.DispatchKeySet(key), q, k, v, hidden(mask))[0]
    except RuntimeError as error: said = error
    except NotImplementedError: pass
raise said
""",
        "not available|crashed",  # some keys are of devices that are not here
    ),
    "the operator, with autocast": by(
        "with torch.autocast('cpu', torch.float32):\n"
        "    return F.scaled_dot_product_attention(q, k, v, mask)"
    ),
    "the operator, registered anew": by(
        "return F.scaled_dot_product_attention(q, k, v, mask)",
        before="""
LIBRARY = torch.library.Library("aten", "IMPL")
for key in ("CompositeImplicitAutograd", "CPU"):
    LIBRARY.impl("scaled_dot_product_attention", lambda *a, **k: 1 / 0, key)
LIBRARY._destroy()
""",
    ),
    "the layer's operator": by(
        "return torch._native_multi_head_attention(q[:, 0], k[:, 0], v[:, 0], 5, 1,"
        " torch.zeros(15, 5), torch.zeros(15), torch.eye(5), torch.zeros(5))[0]"
    ),
    # --- torch's Python
    "the layer without its constructor": by(
        """
import torch.ao.nn.quantizable as quantizable
m = quantizable.MultiheadAttention.__new__(quantizable.MultiheadAttention)
torch.nn.Module.__init__(m)
return m._forward_impl(q[:, 0], k[:, 0], v[:, 0])[0][:, None]
"""
    ),
    "the layer's function": by(
        "return F.multi_head_attention_forward(*[q[:, 0]] * 3, 5, 1, None, None, None,"
        " None, False, 0.0, torch.eye(5), None)[0]"
    ),
    "the encoder": by("return layer(lambda: torch.nn.Transformer(5, 1), q, k, v)"),
    "flex attention": by(
        "from torch.nn.attention.flex_attention import flex_attention\n"
        "return flex_attention(q, k, v)",
        "PermissionError",
    ),
    "flex attention, its arithmetic": by(
        "flex = sys.modules['torch._higher_order_ops.flex_attention']\n"
        "return flex.math_attention(q, k, v, None, None, 1.0, {})[0]"
    ),
    "flex attention, the operator": by(
        "return torch.ops.higher_order.flex_attention(q, k, v, lambda s, *_: s, (),"
        " 1.0, {}, (), ())[0]"
    ),
    "the compiler's patterns": by(
        "from torch._inductor.fx_passes import fuse_attention\n"
        "return fuse_attention._sfdp_pattern_1(q, k, v, q.shape[-1] ** 0.5)",
        "PermissionError",
    ),
    "a decomposition": by(
        "from torch._decomp import decompositions\n"
        "return decompositions.scaled_dot_product_flash_attention_for_cpu(q, k, v)[0]"
    ),
    "torch's operators of ONNX": by(
        "import torch.onnx.ops\nreturn torch.onnx.ops.attention(q, k, v)[0]",
        "not available|PermissionError",
    ),
    "torch's tests": by(
        "from torch.testing._internal import common_methods_invocations as tests\n"
        "return tests.sample_inputs_scaled_dot_product_attention",
        "PermissionError",
    ),
    "a module loaded again": by(
        "import importlib\nimportlib.reload(F)\nreturn F.multi_head_attention_forward",
        "PermissionError",
    ),
    "a module loaded again, from bytes": by(
        "import importlib.util as u\nspec = u.find_spec('torch.nn.functional')\n"
        "return spec.loader.get_code('torch.nn.functional')",
        "PermissionError",
    ),
    "code that is left": by(CODE, "found [] in the end"),
    "torch's source, executed": by(SOURCE, "found [] in the end"),
    # --- other packages
    "another package, onnx.reference": by(
        "import onnx.reference\nreturn q", "PermissionError|No module named"
    ),
    "other packages": by(PACKAGES, "found [] in the end"),
    "another package, said in Python's words": anywhere(
        "import transformers", "No module named 'transformers'"
    ),
    "a package that was put elsewhere": by(
        "sys.path.insert(0, SUBMISSIONS)\nimport helper", "No module named|Permission"
    ),
}
