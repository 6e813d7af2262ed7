"""A class to practise grading with: what Canvas would export, made up.

    python -m tools.practice ../practice --students 30

Writes export.zip, roster.csv and plan.yaml for assignment 1. Every notebook is the
student version with code in some of its cells: right or wrong in one of many ways, and
the same for the same number of students. Somebody hands in nothing, somebody a PDF, one
copies, some are late.
"""

import argparse
import json
import random
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mha_lib.grade.assignments import load

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "book/assignments/student/a1_attention_and_masks.ipynb"
FIRST = "Ada Ben Cleo Dan Eve Finn Grace Hugo Ida Jan Kim Lea Max Nora Omar"
LAST = "Adler Brown Chen Diaz Evans Fischer Garcia Haddad Ito Jansen Kaya Lopez"
HEADERS = "Student,ID,SIS User ID,SIS Login ID,Section,{title} (4711),Final Score"
FILES = ("export.zip", "roster.csv", "plan.yaml")
BY_HAND = 4
PLAN = f"""\
# late: what a day costs in percent; by_hand: what a person marks.
late:
  per_day: 10
by_hand:
  words: {BY_HAND}
"""
ANSWERS = {  # the first ones of each are right
    "softmax": [
        '    largest = x.amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)\n'
        '    e = (x - largest).exp()\n'
        '    return e / e.sum(-1, keepdim=True).clamp(min=1)\n',
        '    hidden = x == float("-inf")\n'
        '    empty = hidden.all(dim=-1, keepdim=True)\n'
        '    shares = x.masked_fill(empty, 0.0).softmax(dim=-1)\n'
        '    return shares.masked_fill(empty, 0.0)\n',
        '    return torch.nan_to_num(torch.nn.functional.softmax(x, dim=-1))\n',
        '    return x.exp() / x.exp().sum(dim=-1, keepdim=True)\n',
        '    shifted = x - x.max(dim=-1, keepdim=True).values\n'
        '    return shifted.exp() / shifted.exp().sum(dim=-1, keepdim=True)\n',
    ],
    "attention_in_loops": [
        '    rows = []\n'
        '    for query in q:\n'
        '        scores = [query @ key / len(key) ** 0.5 for key in k]\n'
        '        shares = softmax(torch.stack(scores))\n'
        '        rows.append(sum(share * value for share, value in zip(shares, v)))\n'
        '    return torch.stack(rows)\n',
        '    out = []\n'
        '    for a in range(q.shape[0]):\n'
        '        row = q.new_zeros(k.shape[0])\n'
        '        for b in range(k.shape[0]):\n'
        '            row[b] = torch.dot(q[a], k[b]) / q.shape[1] ** 0.5\n'
        '        row = softmax(row)\n'
        '        total = torch.zeros_like(v[0])\n'
        '        for b in range(k.shape[0]):\n'
        '            total = total + row[b] * v[b]\n'
        '        out.append(total)\n'
        '    return torch.stack(out)\n',
        '    rows = []\n'
        '    for query in q:\n'
        '        fits = torch.stack([(query * key).sum() for key in k])\n'
        '        rows.append(softmax(fits) @ v)\n'
        '    return torch.stack(rows)\n',
    ],
    "causal_mask": [
        "    return torch.arange(S) <= torch.arange(T)[:, None]\n",
        "    return torch.ones(T, S, dtype=torch.bool).tril()\n",
        "    later = torch.triu(torch.ones(T, S), diagonal=1)\n    return later == 0\n",
        "    mask = torch.zeros(T, S, dtype=torch.bool)\n    for t in range(T):\n"
        "        mask[t, : t + 1] = True\n    return mask\n",
        "    return torch.ones(T, S, dtype=torch.bool).tril(1)\n",
        "    return torch.arange(S) < torch.arange(T)[:, None]\n",
    ],
    "padding_mask": [
        "    return (torch.arange(S) < lengths[:, None])[:, None]\n",
        "    rows = [torch.arange(S) < n for n in lengths]\n"
        "    return torch.stack(rows).unsqueeze(1)\n",
        "    places = torch.arange(S).view(1, 1, S)\n"
        "    return places < lengths.view(-1, 1, 1)\n",
        "    return (torch.arange(S) <= lengths[:, None])[:, None]\n",
    ],
    "combine_masks": [
        "    return causal & padding\n",
        "    return torch.logical_and(causal, padding)\n",
        "    return causal.unsqueeze(0) * padding\n",
        "    return causal | padding\n",
    ],
    "attention": [
        '    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5\n'
        '    if mask is not None:\n'
        '        scores = scores.masked_fill(~mask, float("-inf"))\n'
        '    weights = scores.softmax(dim=-1).nan_to_num(0.0)\n'
        '    return weights @ v, weights\n',
        '    s = torch.einsum("...td,...sd->...ts", q, k) * q.size(-1) ** -0.5\n'
        '    if mask is not None:\n'
        '        s = torch.where(mask, s, torch.tensor(-1e9, dtype=s.dtype))\n'
        '    w = torch.softmax(s, dim=-1)\n'
        '    if mask is not None:\n'
        '        w = w * mask\n'
        '    return torch.einsum("...ts,...sv->...tv", w, v), w\n',
        '    D = q.shape[-1]\n'
        '    logits = torch.matmul(q, k.mT) / torch.tensor(D, dtype=q.dtype).sqrt()\n'
        '    allowed = torch.ones_like(logits, dtype=torch.bool)\n'
        '    if mask is not None:\n'
        '        allowed = allowed & mask\n'
        '    logits = logits.masked_fill(allowed.logical_not(), -torch.inf)\n'
        '    probabilities = torch.nan_to_num(torch.softmax(logits, -1))\n'
        '    context = torch.matmul(probabilities, v)\n'
        '    return context, probabilities\n',
        '    scores = q @ k.mT / q.shape[-1] ** 0.5\n'
        '    if mask is not None:\n'
        '        scores = scores.masked_fill(~mask, float("-inf"))\n'
        '    weights = scores.softmax(dim=-2)\n'
        '    return weights @ v, weights\n',
        '    att = q @ k.mT\n'
        '    if mask is not None:\n'
        '        att = att.masked_fill(mask == 0, -1e20)\n'
        '    att = att.softmax(-1)\n'
        '    out = att @ v\n'
        '    return out, att\n',
        '    scores = (q @ k.mT) / k.shape[-1] ** 0.5\n'
        '    if mask is not None:\n'
        '        scores = scores.masked_fill(mask, float("-inf"))\n'
        '    weights = scores.softmax(dim=-1)\n'
        '    return weights @ v, weights\n',
    ],
    "influence": [
        '    x = x.clone().requires_grad_()\n'
        '    output = f(x)\n'
        '    rows = []\n'
        '    for t in range(len(x)):\n'
        '        total = output[t].sum()\n'
        '        (slope,) = torch.autograd.grad(total, x, retain_graph=True)\n'
        '        rows.append((slope != 0).any(dim=-1))\n'
        '    return torch.stack(rows)\n',
        '    jacobian = torch.autograd.functional.jacobian(f, x)\n'
        '    return jacobian.abs().sum(dim=(1, 3)) > 0\n',
        '    jacobian = torch.autograd.functional.jacobian(f, x)\n'
        '    return (jacobian.abs().sum(dim=(1, 3)) > 0).T\n',
    ],
}  # fmt: skip
RIGHT = {
    "softmax": 3,
    "attention_in_loops": 2,
    "causal_mask": 4,
    "padding_mask": 3,
    "combine_masks": 3,
    "attention": 3,
    "influence": 2,
}
IDLE = [
    "eps = 1e-9",
    'device = torch.device("cpu")',
    "dtype = torch.get_default_dtype()",
    "debug = False",
    "torch.manual_seed(0)",
    "batch_first = True",
    "dims = [-2, -1]",
    'name = "my try, number {}".format(2)',
    "one, zero = torch.ones(1), torch.zeros(1)",
    "start = torch.arange(3).sum().item()",
]
OFTEN = 0.85  # of the answers are right
SKIPPED = 0.05  # are left as they were


@dataclass(frozen=True)
class Student:
    """A line of the roster, and what is handed in; without a suffix, nothing."""

    name: str
    id: int
    late: bool
    suffix: str
    content: str

    @property
    def file(self) -> str:
        """As Canvas calls it."""
        letters = "".join(x for x in self.name.lower() if x.isalnum())
        late = "_LATE" if self.late else ""
        return f"{letters}{late}_{self.id}_{self.id + 90_000}_a1{self.suffix}"


def class_of(count: int) -> Iterator[Student]:
    """So many students, in the order of the roster."""
    copied = ""
    for number in range(count):
        draw = random.Random(number)
        firsts, lasts = FIRST.split(), LAST.split()
        first = firsts[number % len(firsts)]
        name = f"{lasts[number // len(firsts) % len(lasts)]}, {first}"
        content, suffix = written(draw), ".ipynb"
        if number % 30 == 7:
            content = suffix = ""
        elif number % 30 == 11:
            content, suffix = "%PDF-1.7", ".pdf"
        elif number % 30 == 20:
            content = copied.replace("scores", "values_of_keys")
        elif number % 30 == 3:
            copied = content
        yield Student(name, 1000 + number, draw.random() < 0.1, suffix, content)


def written(draw: random.Random) -> str:
    """The student version, with an answer in some of its cells."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        for name, answers in ANSWERS.items():
            if text.startswith(f"def {name}(") and draw.random() > SKIPPED:
                right = draw.random() < OFTEN
                places = (
                    range(RIGHT[name]) if right else range(RIGHT[name], len(answers))
                )
                head = "".join(text.splitlines(keepends=True)[:2])  # with what it says
                text = head + own(answers[draw.choice(places)], draw)
        cell["source"] = text
    return json.dumps(notebook)


def own(answer: str, draw: random.Random) -> str:
    """With lines between that change nothing, as nobody writes as others do."""
    lines = answer.splitlines(keepends=True)
    places = [
        n for n, line in enumerate(lines) if line[:4].isspace() and line[4] != " "
    ]
    idle = draw.sample(IDLE, draw.randint(1, 3))
    chosen = sorted((draw.choice(places) for _ in idle), reverse=True)  # from the end
    for place, line in zip(chosen, idle):
        lines.insert(place, f"    {line}\n")
    return "".join(lines)


def write(folder: Path, count: int) -> None:
    """The three files of the class; none that is there is written over."""
    for name in FILES:
        if (folder / name).exists():
            raise FileExistsError(f"{folder / name} is there already")
    folder.mkdir(parents=True, exist_ok=True)
    assignment = load("a1", ROOT / "book" / "assignments")
    lines = [HEADERS.format(title=assignment.title)]
    lines.append(f"    Points Possible,,,,,{assignment.points + BY_HAND:g},(read only)")
    with zipfile.ZipFile(folder / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for student in class_of(count):
            login = f"student{student.id}@uni.example"
            lines.append(f'"{student.name}",{student.id},S{student.id},{login},1,,')
            if student.suffix:
                archive.writestr(student.file, student.content)
    (folder / "roster.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "plan.yaml").write_text(PLAN, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--students", type=int, default=30)
    options = parser.parse_args()
    try:
        write(options.folder, options.students)
    except FileExistsError as error:
        sys.exit(f"practice: {error}; give another folder")
    print(f"{options.students} students: {options.folder.resolve()}")


if __name__ == "__main__":
    main()
