"""A widget's files become one text, and each of them names what it needs."""

import pytest

from mha_lib.widgets import base

FILES = {
    "drawing": 'import { a } from "./a.js";\nimport {\n  b,\n} from "./b.js";\na(b);\n',
    "a": 'import { b, } from "./b.js";\nexport const a = () => b;\n',
    "b": "export const b = 1;\nexport default b;\n",
}


@pytest.fixture
def module(monkeypatch):
    """`base.module` of `drawing`, some files replaced."""

    def read(**files):
        texts = FILES | files
        monkeypatch.setattr(base, "_read", lambda name: texts[name[: -len(".js")]])
        return base.module("drawing")

    return read


def test_each_file_stands_once_before_all_that_need_it(module):
    assert module() == ("const b = 1;\nexport default b;\nconst a = () => b;\na(b);\n")


@pytest.mark.parametrize(
    "line",
    [
        'import * as b from "./b.js";',
        'import { b as c } from "./b.js";',
        'import { b } from "./deeper/b.js";',
        'import { b } from "./b.js"',
        'import "./b.js";',
    ],
)
def test_an_import_of_another_form_is_refused(module, line):
    with pytest.raises(ValueError, match=r'^a\.js must import \{ a, b \} from "\./x'):
        module(a=f"{line}\nexport const a = 2;\n")


@pytest.mark.parametrize("kind", ["const b =", "let b =", "class b", "function b"])
def test_no_two_files_share_a_name(module, kind):
    with pytest.raises(ValueError, match=r"^b, a, drawing .* share .* \['b'\]$"):
        module(a=f'import {{ b }} from "./b.js";\n{kind} ();\nexport const a = 2;\n')


def test_each_file_imports_what_it_uses(scripts, every_widget):
    """Joined, a file could use what only another one imports; apart it cannot."""
    for widget in every_widget:
        name = type(widget).__module__.rpartition(".")[2]
        state = widget.get_state()
        found = scripts.evaluate(
            """async ([name, state]) => {
                const { default: { render } } = await import(`/${name}.js`);
                const el = document.createElement("div");
                document.body.append(el);
                const model = { get: (trait) => state[trait], on() {} };
                render({ model, el });
                return el.innerText;
            }""",
            [name, {k: v for k, v in state.items() if not k.startswith("_")}],
        )
        assert len(found) > 100 and "cannot be drawn" not in found, name


@pytest.mark.parametrize("name", [x.stem for x in base.HERE.glob("*.css")])
def test_a_length_below_zero_is_ours_too(name):
    """`-calc(…)` is no length: a browser drops the rule."""
    assert "-calc(" not in base.style(name)
