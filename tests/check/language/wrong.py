"""Wrong programs: a right one with a slip in it, and the name of what it is.

Each row changes the text of a program of `right`, as people have it wrong; none is
made of the catalogue's own code.
"""

import inspect
import textwrap

from tests.check.language import right

WRONG = [  # task, program, old, new, name
    ("next_token_loss", "plain", "tokens[:, 1:]", "tokens[:, :-1]", "loss-not-shifted"),
    (
        *("next_token_loss", "plain", "logits.mT, targets"),
        *("logits[:, :-1].mT, tokens[:, 2:]", "loss-shifted-twice"),
    ),
    (
        *("next_token_loss", "plain", "logits.mT, targets"),
        *("logits[:, :-1].mT, tokens[:, 1:-1]", "loss-last-left-out"),
    ),
    (
        *("next_token_loss", "plain", "logits.mT, targets"),
        *("logits[:, 1:].mT, tokens[:, 1:-1]", "loss-shifted-back"),
    ),
    (
        *("next_token_loss", "plain", "logits.mT, targets"),
        *("logits[:, 1:].mT, tokens[:, 2:]", "loss-first-left-out"),
    ),
    (
        *("next_token_loss", "plain", "logits.mT, targets"),
        *("logits[:, -1], tokens[:, -1]", "loss-last-only"),
    ),
    ("next_token_loss", "plain", "=padding", "=padding, reduction='sum'",
     "loss-summed"),
    ("next_token_loss", "plain", "=padding", "=0", "padding-always-0"),
    ("next_token_loss", "plain", ", ignore_index=padding", "", "padding-counted"),
    (
        *("next_token_loss", "plain", "(logits.mT"),
        *("(logits.softmax(-1).mT", "softmax-twice-in-loss"),
    ),
    ("next_token_loss", "nll", "F.log_softmax(logits, dim=-1)", "logits",
     "no-softmax-in-loss"),
    ("next_token_loss", "nll", "dim=-1", "dim=1", "softmax-over-places"),
    ("next_token_loss", "nll", "F.log_softmax", "F.softmax", "no-logarithm"),
    ("next_token_loss", "nll", "F.log_softmax(logits, dim=-1)",
     "torch.log(F.softmax(logits, dim=-1))", "large-logits"),
    ("next_token_loss", "in_loops", "(x - largest).exp().sum().log() + largest",
     "x.exp().sum().log()", "large-logits"),
    ("next_token_loss", "one_hot", "/ counts.sum()", "/ counts.numel()",
     "loss-divided-by-all"),
    ("next_token_loss", "one_hot", "/ counts.sum()", "/ len(tokens)", "loss-by-rows"),
    ("next_token_loss", "one_hot", "(cost * counts).sum() / counts.sum()",
     "((cost * counts).sum(1) / counts.sum(1)).mean()", "loss-mean-of-rows"),
    ("next_token_loss", "one_hot", "cost = -", "cost = ", "loss-sign"),
    ("next_token_loss", "flattened", "tokens[:, 1:].flatten()",
     "tokens[:, 1:].T.flatten()", "places-mixed"),
    ("next_token_loss", "flattened", "padding,\n    )", "padding,\n    ).exp()",
     "perplexity"),
    ("next_token_loss", "flattened", "padding,\n    )", "padding,\n    ).item()",
     "loss-detached"),
    ("next_token_loss", "flattened", "padding,\n    )", "padding,\n    ) / math.log(2)",
     "bits"),
    ("block", "Usual", "x = x + out\n        return x + self.mlp(self.norm2(x))",
     "x = self.norm1(x + out)\n        return self.norm2(x + self.mlp(x))",
     "pre-and-post-norm"),
    ("block", "Usual", "h = self.norm1(x)\n        out, _ = self.attention(h, h, h, "
     "mask)\n        x = x + out\n        return x + self.mlp(self.norm2(x))",
     "out, _ = self.attention(x, x, x, mask)\n        x = self.norm1(x + out)\n"
     "        return self.norm2(x + self.mlp(x))", "post-norm"),
    ("block", "Usual", "x = x + out", "x = out", "no-residual-attention"),
    ("block", "Usual", "return x + self.mlp", "return self.mlp", "no-residual-mlp"),
    ("block", "Usual", "x = x + out", "x = h + out", "residual-normed-attention"),
    ("block", "Usual", "return x + self.mlp(self.norm2(x))",
     "x = self.norm2(x)\n        return x + self.mlp(x)", "residual-normed-mlp"),
    ("block", "Usual", "h = self.norm1(x)", "h = x", "no-norm-attention"),
    ("block", "Usual", "self.mlp(self.norm2(x))", "self.mlp(x)", "no-norm-mlp"),
    ("block", "Usual", "self.norm2(x)", "self.norm1(x)", "norm1-twice"),
    ("block", "Usual", "self.norm2(x)", "h", "norm-once"),
    ("block", "Usual", "x = x + out\n        return x + self.mlp(self.norm2(x))",
     "return x + out + self.mlp(self.norm2(x))", "parallel"),
    ("block", "Usual", "x = x + out\n        return x + self.mlp(self.norm2(x))",
     "return x + self.mlp(self.norm2(x + out))", "residual-from-the-start"),
    ("block", "Usual", "x = x + out\n        return x + self.mlp(self.norm2(x))",
     "return x + self.mlp(self.norm2(out))", "parts-chained"),
    ("block", "Usual", "x = x + out\n        return x + self.mlp(self.norm2(x))",
     "x = x + out\n        return x + self.norm2(self.mlp(x))", "norm-behind-mlp"),
    ("block", "Usual", "attention(h, h, h, mask)", "attention(h, x, x, mask)",
     "query-alone-normed"),
    ("block", "Usual", "attention(h, h, h, mask)", "attention(h, h, x, mask)",
     "value-not-normed"),
    ("block", "Usual", "attention(h, h, h, mask)", "attention(h, h, h)",
     "block-without-mask"),
    ("block", "Usual", "attention(h, h, h, mask)", "attention(h, h, h, ~mask)",
     "block-mask-inverted"),
    ("block", "Usual", "attention(h, h, h, mask)", "attention(h, h, h, mask.T)",
     "block-mask-turned"),
    ("block", "Usual", "nn.GELU()", "nn.ReLU()", "relu"),
    ("block", "Usual", "nn.GELU()", "nn.SiLU()", "silu"),
    ("block", "Usual", "nn.GELU()", "nn.GELU('tanh')", "gelu-tanh"),
    ("block", "Usual", "nn.GELU(),", "", "no-activation"),
    ("block", "OwnNorm", " + 1e-5", "", "norm-without-eps"),
    ("block", "OwnNorm", "correction=0", "correction=1", "norm-unbiased"),
    ("block", "OwnNorm", "torch.rsqrt(var + 1e-5)", "(1 / (var.sqrt() + 1e-5))",
     "norm-eps-outside"),
    ("block", "OwnNorm", "torch.rsqrt(var + 1e-5)", "(1 / x.std(-1, keepdim=True))",
     "norm-unbiased-without-eps"),
    ("block", "OwnNorm", "torch.rsqrt(var + 1e-5)", "(1 / (var + 1e-5))",
     "norm-by-variance"),
    ("block", "OwnNorm", "dim=-1", "dim=1", "norm-of-places"),
    ("block", "OwnNorm", " * self.weight + self.bias", "", "norm-without-gain"),
    ("block", "OwnNorm", " * torch.rsqrt(var + 1e-5)", "", "norm-centred-alone"),
    ("language_model", "Model", " + self.place(torch.arange(T, device=tokens.device))",
     "", "no-places"),
    ("language_model", "Model", " + self.place(", " * self.place(",
     "places-multiplied"),
    ("language_model", "Model", "self.place(torch.arange(T, device=tokens.device))",
     "self.place(torch.arange(len(tokens)))[:, None]", "places-of-rows"),
    ("language_model", "Model", "torch.arange(T, device=tokens.device)",
     "torch.zeros(T).long()", "place-0-for-all"),
    ("language_model", "Model", "torch.arange(T, device=tokens.device)",
     "tokens % self.place.num_embeddings", "places-of-words"),
    ("language_model", "Model", "self.output(self.norm(x))", "self.output(x)",
     "no-final-norm"),
    ("language_model", "Model", "        self.output.weight = self.word.weight\n", "",
     "untied"),
    ("language_model", "Model", "bias=False", "bias=True", "output-bias"),
    ("language_model", "Model", "x = self.word(tokens) +",
     "x = self.word(tokens) * math.sqrt(self.word.embedding_dim) +",
     "embedding-scaled"),
    ("language_model", "Model", "block(x, mask)", "block(x, None)",
     "model-without-mask"),
    ("language_model", "Model", "block(x, mask)", "block(x, ~mask)",
     "model-mask-inverted"),
    ("language_model", "Model", "torch.tril(", "torch.triu(", "model-mask-turned"),
    ("language_model", "Model", "torch.ones(T, T))", "torch.ones(T, T), -1)",
     "model-mask-blocks-itself"),
    ("language_model", "Model", "torch.ones(T, T))", "torch.ones(T, T), 1)",
     "model-mask-leaks"),
    ("language_model", "Model", "x = block(x, mask)", "block(x, mask)", "no-blocks"),
    ("language_model", "Model", "x = block(x, mask)\n        return self.output("
     "self.norm(x))", "y = block(x, mask)\n        return self.output(self.norm(y))",
     "last-block-alone"),
    ("language_model", "Model", "        return self.output(self.norm(x))",
     "            return self.output(self.norm(x))", "first-block-alone"),
    ("language_model", "Model", "block(x, mask)", "self.blocks[0](x, mask)",
     "first-block-always"),
    ("language_model", "Model", "x = block(x, mask)", "x = self.norm(block(x, mask))",
     "norm-in-the-loop-too"),
    ("language_model", "Model", "self.output(self.norm(x))",
     "self.output(self.norm(x)).softmax(-1)", "model-softmax"),
    ("language_model", "Model", "self.output(self.norm(x))",
     "self.output(self.norm(x)).log_softmax(-1)", "model-log-softmax"),
    ("language_model", "Model", "self.output(self.norm(x))",
     "self.output(self.norm(x))[:, -1]", "last-place-alone"),
    ("training_step", "usual", "    optimizer.zero_grad(set_to_none=True)\n", "",
     "no-zero-grad"),
    ("training_step", "usual", "    optimizer.zero_grad(set_to_none=True)\n"
     "    loss.backward()\n", "    loss.backward()\n    optimizer.zero_grad()\n",
     "no-step"),
    ("training_step", "usual", "    loss.backward()\n", "", "no-step"),
    ("training_step", "usual", "    optimizer.step()\n", "", "no-step"),
    ("training_step", "usual", "    optimizer.zero_grad(set_to_none=True)\n"
     "    loss.backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), "
     "max_norm=clip)\n    optimizer.step()\n", "    optimizer.step()\n    "
     "optimizer.zero_grad()\n    loss.backward()\n    torch.nn.utils.clip_grad_norm_("
     "model.parameters(), clip)\n", "step-before-backward"),
    ("training_step", "usual", "    optimizer.zero_grad(set_to_none=True)\n"
     "    loss.backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), "
     "max_norm=clip)\n    optimizer.step()\n", "    loss.backward()\n    torch.nn."
     "utils.clip_grad_norm_(model.parameters(), clip)\n    optimizer.step()\n    "
     "optimizer.zero_grad()\n", "zero-grad-late"),
    ("training_step", "usual", "    torch.nn.utils.clip_grad_norm_(model.parameters(), "
     "max_norm=clip)\n    optimizer.step()\n", "    optimizer.step()\n    "
     "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=clip)\n",
     "no-clipping"),
    ("training_step", "usual", "    torch.nn.utils.clip_grad_norm_(model.parameters(), "
     "max_norm=clip)\n", "", "no-clipping"),
    ("training_step", "usual", "    loss.backward()\n    torch.nn.utils."
     "clip_grad_norm_(model.parameters(), max_norm=clip)\n", "    torch.nn.utils."
     "clip_grad_norm_(model.parameters(), max_norm=clip)\n    loss.backward()\n",
     "no-clipping"),
    ("training_step", "usual", "clip_grad_norm_(model.parameters(), max_norm=",
     "clip_grad_value_(model.parameters(), clip_value=", "clipped-by-value"),
    ("training_step", "by_hand", "min(1.0, clip / (norm + 1e-6))", "(clip / norm)",
     "always-scaled"),
    ("training_step", "by_hand", "math.sqrt(sum(float(g.square().sum()) for g in "
     "grads))", "0", "no-clipping"),
    ("training_step", "usual", "rate_of(step)", "rate_of(step + 1)",
     "rate-of-next-step"),
    ("training_step", "usual", "rate_of(step)", "rate_of(step - 1)",
     "rate-of-step-before"),
    ("training_step", "usual", '    for group in optimizer.param_groups:\n        '
     'group["lr"] = rate_of(step)\n', "", "rate-not-set"),
    ("training_step", "usual", "for group in optimizer.param_groups:",
     "for group in optimizer.param_groups[:1]:", "rate-of-first-group"),
    ("training_step", "usual", "    model.train()\n", "", "left-in-eval-mode"),
    ("training_step", "usual", "loss.item()", "loss", "graph-kept"),
    ("training_step", "usual", "tokens[:, 1:].flatten()", "tokens[:, :-1].flatten()",
     "step-loss-not-shifted"),
    ("training_step", "usual", "tokens[:, 1:].flatten()",
     "tokens[:, 1:].flatten(), reduction='sum'", "step-loss-summed"),
    ("training_step", "with_closure", ", tokens, -1)", ", tokens)",
     "step-word-0-left-out"),
    ("training_step", "usual", "logits = model(tokens[:, :-1])",
     "logits = model(tokens[:, :-1]).softmax(-1)", "step-softmax-twice"),
    ("generate", "writes", "F.softmax(logits, dim=-1)", "logits.relu()",
     "no-softmax-in-draw"),
    ("generate", "writes", "F.softmax(logits, dim=-1)",
     "F.softmax(logits, dim=0).nan_to_num() + 1e-9", "softmax-over-rows"),
    ("generate", "writes", "F.softmax(logits, dim=-1)",
     "F.softmax(F.softmax(logits, dim=-1), dim=-1)", "draw-softmax-twice"),
    ("generate", "writes", " / temperature", " * temperature",
     "temperature-multiplied"),
    ("generate", "writes", " / temperature", "", "temperature-ignored"),
    ("generate", "by_distribution", "(model(read)[:, -1] / temperature).softmax(-1)",
     "model(read)[:, -1].softmax(-1) / temperature", "temperature-ignored"),
    ("generate", "writes", "logits < least", "logits > least", "top-k-above-out"),
    ("generate", "writes", "            logits[logits < least] = -float(\"inf\")\n",
     "            pass\n", "top-k-ignored"),
    ("generate", "writes", '-float("inf")', "0.0", "top-k-zeros"),
    ("generate", "by_gumbel", "indices.gather(1, best)", "best", "top-k-place"),
    ("generate", "by_gumbel", "logits.topk(top_k, dim=-1)",
     "logits.topk(top_k, dim=-1, largest=False)", "top-k-smallest"),
    ("generate", "writes", "torch.multinomial(p, num_samples=1)",
     "p.argmax(-1, keepdim=True)", "argmax-always"),
    ("generate", "writes", ")[:, -1]", ")[:, 0]", "first-place"),
    ("generate", "writes", "tokens[:, -context:]", "tokens", "context-not-cut"),
    ("generate", "writes", "tokens[:, -context:]", "tokens[:, :context]",
     "context-cut-in-front"),
    ("generate", "writes", "tokens[:, -context:]", "tokens[:, -1:]",
     "last-token-alone"),
    ("generate", "writes", "return tokens", "return tokens[:, -new:]", "prompt-lost"),
    ("generate", "writes", "range(new)", "range(new + 1)", "one-token-more"),
    ("generate", "writes", "range(new)", "range(1, new)", "one-token-less"),
    ("generate", "writes", "    model.eval()\n", "", "training-mode-while-writing"),
    ("generate", "writes", "    model.train(was)\n", "", "mode-not-restored"),
    ("generate", "writes", "@torch.no_grad()\n", "", "gradients-kept"),
    ("generate", "by_distribution", "torch.no_grad()", "torch.enable_grad()",
     "gradients-kept"),
    ("generate", "writes", "(tokens, torch.multinomial(p, num_samples=1))",
     "(torch.multinomial(p, num_samples=1), tokens)", "written-in-front"),
    ("generate", "writes", "torch.multinomial(p, num_samples=1)",
     "torch.multinomial(p[:1], 1).expand(len(p), 1)", "one-draw-for-all"),
]  # fmt: skip


def changed(program, old, new):
    """The program with one change in its text."""
    found = getattr(right, program)
    source = textwrap.dedent(inspect.getsource(found))
    assert old in source, (program, old)
    space = dict(vars(right))
    exec(source.replace(old, new), space)
    if program == "OwnNorm":  # it is a part of that block
        exec(textwrap.dedent(inspect.getsource(right.ByHand)), space)
        return space["ByHand"]
    return space[program]
