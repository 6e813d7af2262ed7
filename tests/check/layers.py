"""A right layer to be broken, and one that is."""

import torch

from tests.check.submissions_wrong import Base


class Right(Base):
    """A right layer of four nn.Linear."""

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        s = q @ k.mT / self.scale()
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -torch.inf)
        return self.w_o(self.join(s.softmax(-1) @ v))

    def scale(self):
        return self.d_k**0.5


class NoScale(Right):
    def scale(self):
        return 1.0
