"""What shows that the library is right: the book and the tests import it.

`reference` is multi-head attention by its definition, `strategies` are the ways to
attend and random cases for them, `laws` is what holds for any input, `agreement`
compares every way with every other, `derivatives` makes gradients measurable. `oracles`
says how many cases other people's tests have and what they cannot see; `empty_rows`
calls other libraries. `watch` runs tests and notes every comparison that they make;
`judged` stores what those of other people said.
"""
