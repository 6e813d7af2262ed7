"""What is wrong with a submission beside its numbers: no stage shows it."""

from mha_lib.check.catalogue.mistake import Mistake

_DROPS = "deeper/05_what_dropout_drops#which-number-does-dropout-drop"
_SLIPS = "deeper/05_what_dropout_drops#five-slips-and-what-each-leaves-behind"
_POST = "deeper/08_what_the_post_says#in-its-code"


MISTAKES = (
    Mistake(
        "dropout-in-eval",
        "The same call gives another answer each time",
        "dropout is active in evaluation mode (F.dropout without training=self."
        "training)",
        _DROPS,
    ),
    Mistake(
        "dropout-on-scores",
        "In training hidden and visible scores become 0, and rows still sum to 1",
        "dropout is applied to the scores, before the softmax",
        _SLIPS,
    ),
    Mistake(
        "dropout-on-output",
        "In training single features drop, not whole weights",
        "dropout is applied to the output only, not to the weights",
        _DROPS,
    ),
    Mistake(
        "dropout-not-rescaled",
        "In training the kept weights are not larger",
        "weights are dropped without the factor 1/(1 - p)",
        _SLIPS,
    ),
    Mistake(
        "dropout-unused",
        "Training and evaluation give the same answer",
        "the dropout probability is taken and never used",
        _SLIPS,
    ),
    Mistake(
        "weights-after-dropout",
        "The returned weights do not sum to 1 in training",
        "the weights are returned after dropout, not before it",
        _SLIPS,
    ),
    Mistake(
        "weights-returned-wrong",
        "The output is right and the returned weights are not",
        "another tensor than the weights (B, H, T, S) is returned beside the output",
        "deeper/01_right_shape_wrong_numbers#weights-that-are-called-scores",
    ),
    Mistake(
        "inputs-changed",
        "After the call an input is not what it was",
        "an operation in place (one that ends in _, or x[…] = …) changes it",
        "04_masks#what-goes-wrong",
    ),
    Mistake(
        "wrong-output-dtype",
        "The output has another dtype than the input",
        "a constant or a cast of a fixed dtype decides the dtype of the output",
        _POST,
    ),
    Mistake(
        "constant-dtype",
        "In half precision the code fails or changes the dtype",
        "a tensor made with a fixed dtype meets the inputs",
        _POST,
        "pytorch/pytorch#41508",
    ),
    Mistake(
        "constant-device",
        "On another device the code fails",
        "a tensor is made without device=x.device",
        _POST,
    ),
    Mistake(
        "fill-overflows-half",
        "In half precision the code fails",
        "the number that hides a score does not fit into float16; use float('-inf') or "
        "torch.finfo(dtype).min",
        "deeper/04_fill_values_and_half_precision#eight-fills",
        "pytorch/pytorch#41508",
    ),
    Mistake(
        "needs-equal-sizes",
        "The code runs only where two sizes agree",
        "an axis is taken for another one of the same size",
        "deeper/01_right_shape_wrong_numbers#two-exchanges",
    ),
    Mistake(
        "mask-not-boolean",
        "The mask holds numbers",
        "it is not of dtype torch.bool, so nothing says what 1 means",
        "deeper/04_masks_of_every_rank#what-the-library-refuses",
    ),
)
