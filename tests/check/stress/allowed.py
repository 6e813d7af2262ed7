"""Programs of the register that `check` calls right, by the reason why it may."""

ALLOWED = {
    "float64 may be computed in float32: right programs do so, and their dtype is "
    "right": [
        "SinglePrecision",
        "computes_in_float32",
        "float32_zeros",
    ],
    "a mask (S,) is refused by F.scaled_dot_product_attention itself": [
        "needs_a_row_axis",
    ],
}
