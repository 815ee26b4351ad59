"""Random expressions, statements and white space: Jinja2 and our interpreter must agree on the text, or on that it
is an error. What Python shows with an address (a generator, a method) must be an error, and what we refuse aloud
(status "unsupported" or "limit") may be one."""

import os
import random
import re

import pytest
from template_reference import ours, render

SEED = int(os.environ.get("CHURON_TEST_SEED", "1"))
CASES = int(os.environ.get("CHURON_TEST_CASES", "3000"))

CONTEXT = {
    "s": "Hello, World",
    "t": "  naïve Straße ΣΑΣ ok\n\tǆ 안녕 ",
    "u": "it's \"q\" \\ \x01\u200b\U0001f600é",
    "e": "",
    "i": 7,
    "j": -3,
    "big": 9007199254740993,
    "f": 2.5,
    "g": -0.1,
    "h": 1e16,
    "yes": True,
    "no": False,
    "nil": None,
    "l": [3, 1, 2],
    "m": ["b", "A", "c", "a"],
    "n": [],
    "mix": [1, "x", None, True, 2.0, [1], {"k": 1}],
    "d": {"a": 1, "b": "two", "items": [1], "C": None},
    "q": {"role": "user", "content": "hi", "n": {"x": [10, 20]}},
    "r": [{"k": "x", "v": 2}, {"k": "Y", "v": 1}, {"k": "x", "v": 3, "w": True}],
}

NAMES = {
    "str": ["s", "t", "u", "e", "q.role", "d['b']", "q['content']"],
    "int": ["i", "j", "yes", "no", "q.n.x[0]", "r[0].v"],
    "float": ["f", "g", "h"],
    "list": ["l", "m", "n", "mix", "r", "q.n.x"],
    "dict": ["d", "q", "r[1]", "q.n"],
    "any": ["nil", "missing", "d.nothing", "l[9]", "big", "mix[2]", "range(4)", "d.items()", "d.keys()", "q.values()"],
}
SMALL = ["0", "1", "2", "3", "5", "-1", "-2", "10"]
TEXTS = ["''", "'a'", "'o'", "', '", "'World'", "'x\\ny'", "\"it's\"", "'%s-%s'", "'{} {}'", "'%5.1f|'", "'ß'", "'12'", "' 3.50 '",
         "'a b  c'", "'<b>&'", "'안'"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *options):
        return self.r.choice(options)

    def small(self):
        return self.r.choice(SMALL)

    def make(self, kind, depth):
        if self.r.random() < 0.08:
            kind = self.pick("str", "int", "float", "list", "dict", "bool", "any")
        if depth <= 0 or self.r.random() < 0.15:
            return self.leaf(kind)
        return getattr(self, kind)(depth - 1)

    def leaf(self, kind):
        if kind in ("any_kind", "number"):
            kind = self.pick("int", "float") if kind == "number" else self.pick("str", "int", "float", "list", "dict", "any")
        if kind == "bool":
            return self.pick("true", "false", "yes", "no", "i == 7")
        if self.r.random() < 0.5 or kind == "any":
            return self.r.choice(NAMES[kind])
        return {
            "str": lambda: self.r.choice(TEXTS),
            "int": lambda: self.r.choice(SMALL),
            "float": lambda: self.pick("0.5", "1.0", "3.14159", "1e3", "2.675", "1e-7", "123456789.125"),
            "list": lambda: self.pick("[]", "[1]", "[2, 1, 2]", "['a', 'B']", "(1, 2)", "('x',)", "[[1, 'a'], [2, 'b']]"),
            "dict": lambda: self.pick("{}", "{'a': 1}", "{1: 'x', 'y': [2]}", "{'k': {'z': 'q'}}"),
        }[kind]()

    def str(self, d):
        s, a = (lambda: self.make("str", d)), (lambda: self.make("any_kind", d))
        return self.pick(
            lambda: f"({s()} ~ {a()})",
            lambda: f"({s()} + {s()})",
            lambda: f"({s()} * {self.small()})",
            lambda: f"{self.atom(s())}[{self.slice(d)}]",
            lambda: f"{self.atom(s())}.{self.pick('upper', 'lower', 'title', 'capitalize', 'strip', 'lstrip', 'rstrip', 'swapcase')}()",
            lambda: f"{self.atom(s())}.{self.pick('strip', 'lstrip', 'rstrip')}({s()})",
            lambda: f"{self.atom(s())}.replace({s()}, {s()}{self.pick('', ', 1', ', -1')})",
            lambda: f"{self.atom(s())}.{self.pick('removeprefix', 'removesuffix')}({s()})",
            lambda: f"{self.atom(s())}.{self.pick('center', 'ljust', 'rjust', 'zfill')}({self.small()})",
            lambda: f"{self.atom(s())}.join({self.make('list', d)})",
            lambda: f"{self.atom(s())}.format({a()}, {a()})",
            lambda: f"('{self.format_spec()}'.format({self.make('number', d)}))",
            lambda: f"('%{self.percent_spec()}' % ({a()},))",
            lambda: f"({s()}|{self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'e', 'safe', 'urlencode', 'striptags', 'forceescape')})",
            lambda: f"({a()}|{self.pick('string', 'tojson', 'upper', 'trim', 'e', 'tojson(indent=1)', 'tojson(sort_keys=true)', 'tojson(ensure_ascii=true)')})",
            lambda: f"({self.make('list', d)}|join{self.pick('', '(', '(', '(')}".replace("join(", f"join({self.r.choice(TEXTS)})") + ")",
            lambda: f"({s()}|replace({s()}, {a()}))",
            lambda: f"({s()}|indent({self.pick('2', '3, true', '1, false, true')}))",
            lambda: f"({s()}|truncate({self.pick('5', '9, true', '4, false, chr', '8, leeway=0')}))",
            lambda: f"({s()}|{self.pick('center(9)', 'format(1, 2)', 'default(3)', 'wordcount', 'length', 'list', 'first', 'last', 'reverse')})",
            lambda: f"({s()} if {self.make('bool', d)} else {s()})",
            lambda: f"({s()} {self.pick('or', 'and')} {s()})",
        )()

    def number(self, d):
        return self.make(self.pick("int", "float"), d)

    def any_kind(self, d):
        return self.make(self.pick("str", "str", "int", "float", "list", "dict", "bool", "any"), d)

    def any(self, d):
        a = lambda: self.make("any_kind", d)
        return self.pick(
            lambda: f"({a()} or {a()})",
            lambda: f"({a()} and {a()})",
            lambda: f"({a()} if {self.make('bool', d)}{self.pick('', ' else ' + a())})",
            lambda: f"{self.atom(self.make('dict', d))}.{self.pick('a', 'b', 'k', 'items', 'nothing')}",
            lambda: f"{self.atom(self.make('dict', d))}[{self.pick(repr('a'), repr('role'), repr('zz'), '1', 'nil')}]",
            lambda: f"{self.atom(self.make('dict', d))}.get({self.pick(repr('a'), repr('b'), repr('zz') + ', 5')})",
            lambda: f"{self.atom(self.make('list', d))}[{self.small()}]",
            lambda: f"({a()}|default({a()}{self.pick('', ', true')}))",
            lambda: f"({self.make('list', d)}|{self.pick('first', 'last', 'max', 'min', 'sum', 'length', 'unique|list', 'reverse|list', 'list')})",
            lambda: f"({a()}|attr({self.pick(repr('a'), repr('upper'), repr('items'))}))",
        )()

    def int(self, d):
        i, s = (lambda: self.make("int", d)), (lambda: self.make("str", d))
        return self.pick(
            lambda: f"({i()} {self.pick('+', '-', '*', '//', '%')} {i()})",
            lambda: f"({i()} ** {self.pick('0', '1', '2', '3')})",
            lambda: f"(-{i()})",
            lambda: f"({self.make('any_kind', d)}|length)",
            lambda: f"{self.atom(s())}.{self.pick('find', 'rfind', 'count', 'index')}({s()})",
            lambda: f"{self.atom(s())}.find({s()}, {self.small()}, {self.small()})",
            lambda: f"({self.make('any_kind', d)}|int{self.pick('', '(9)', '(default=1, base=16)')})",
            lambda: f"({i()}|abs)",
            lambda: f"({self.make('float', d)}|round|int)",
            lambda: f"({s()}|wordcount)",
        )()

    def float(self, d):
        n = lambda: self.make("number", d)
        return self.pick(
            lambda: f"({n()} {self.pick('+', '-', '*', '/', '//', '%')} {n()})",
            lambda: f"({n()} ** {self.pick('0.5', '-1', '2')})",
            lambda: f"({n()}|round{self.pick('', '(1)', '(2)', '(3)', '(1, method=' + repr('ceil') + ')', '(2, ' + repr('floor') + ')')})",
            lambda: f"({self.make('any_kind', d)}|float)",
            lambda: f"(-{n()})",
        )()

    def list(self, d):
        items = lambda: self.make("list", d)
        one = lambda: self.make("any_kind", d)
        return self.pick(
            lambda: f"[{one()}, {one()}]",
            lambda: f"({one()}, {one()})",
            lambda: f"({items()} + {items()})",
            lambda: f"({items()} * {self.small()})",
            lambda: f"{self.atom(items())}[{self.slice(d)}]",
            lambda: f"{self.atom(self.make('str', d))}.{self.pick('split()', 'rsplit(none, 1)', 'splitlines()', 'split(none, 2)', 'partition(chr or ' + repr(' ') + ')')}",
            lambda: f"{self.atom(self.make('str', d))}.{self.pick('split', 'rsplit')}({self.make('str', d)}{self.pick('', ', 1')})",
            lambda: f"({items()}|{self.pick('list', 'sort', 'sort(reverse=true)', 'sort(case_sensitive=true)', 'unique|list', 'reverse|list', 'batch(2)|list', 'batch(3, 0)|list', 'slice(2)|list', 'slice(3, none)|list')})",
            lambda: f"({items()}|map({self.pick(*map(repr, ['upper', 'string', 'length', 'tojson', 'int', 'first']))})|list)",
            lambda: f"({items()}|{self.pick('select', 'reject')}({self.pick('', *map(repr, ['string', 'defined', 'odd', 'none', 'mapping']))})|list)",
            lambda: f"({items()}|select({self.pick(repr('=='), repr('in'), repr('lt'), repr('ne'))}, {one()})|list)",
            lambda: f"(r|{self.pick('map', 'groupby', 'sort')}(attribute={self.pick(repr('k'), repr('v'), repr('k,v'), repr('w'))})|list)",
            lambda: f"(r|{self.pick('selectattr', 'rejectattr')}({self.pick(repr('w'), repr('k') + ', ' + repr('==') + ', ' + repr('x'), repr('v') + ', ' + repr('gt') + ', 1')})|list)",
            lambda: f"({self.make('dict', d)}|{self.pick('dictsort', 'items|list', 'list', 'dictsort(true)', 'dictsort(false, ' + repr('value') + ')')})",
            lambda: f"({self.make('dict', d)}.{self.pick('items', 'keys', 'values')}()|list)",
            lambda: f"(range({self.small()}, {self.small()}, {self.small()})|list)",
        )()

    def dict(self, d):
        return self.pick(
            lambda: f"{{{self.pick(repr('a'), repr('z'), '1', 'nil', 'f')}: {self.make('any_kind', d)}, 'k': {self.make('any_kind', d)}}}",
            lambda: f"dict({self.make('dict', d)}, x={self.make('any_kind', d)})",
            lambda: f"({self.make('dict', d)} or {self.make('dict', d)})",
            lambda: f"{self.atom(self.make('dict', d))}.copy()",
        )()

    def bool(self, d):
        a, n = (lambda: self.make("any_kind", d)), (lambda: self.make("number", d))
        return self.pick(
            lambda: f"({a()} {self.pick('==', '!=')} {a()})",
            lambda: f"({n()} {self.pick('<', '<=', '>', '>=')} {n()})",
            lambda: f"({n()} {self.pick('<', '<=', '==')} {n()} {self.pick('<', '!=', '>')} {n()})",
            lambda: f"({self.make('str', d)} {self.pick('<', '>=')} {self.make('str', d)})",
            lambda: f"({self.make('list', d)} {self.pick('<', '>=')} {self.make('list', d)})",
            lambda: f"({a()} {self.pick('in', 'not in')} {self.make(self.pick('list', 'dict', 'str', 'any'), d)})",
            lambda: f"(not {a()})",
            lambda: f"({self.make('bool', d)} {self.pick('and', 'or')} {self.make('bool', d)})",
            lambda: f"({a()} is {self.pick('', 'not ')}{self.pick('defined', 'none', 'string', 'mapping', 'number', 'iterable', 'sequence', 'boolean', 'integer', 'float', 'true', 'false', 'undefined', 'lower', 'upper', 'callable', 'escaped')})",
            lambda: f"({self.make('int', d)} is {self.pick('odd', 'even', 'divisibleby 3', 'divisibleby(2)')})",
            lambda: f"({a()} is {self.pick('eq', 'ne', 'in', 'equalto')} {self.atom(a())})",
            lambda: f"{self.atom(self.make('str', d))}.{self.pick('startswith', 'endswith')}({self.make('str', d)})",
            lambda: f"{self.atom(self.make('str', d))}.{self.pick('isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'istitle', 'isalnum', 'isascii')}()",
        )()

    def atom(self, text):
        return text if re.fullmatch(r"[\w.]+|'[^']*'|\(.*\)", text) and not text.startswith("(1") else f"({text})"

    def slice(self, d):
        bound = lambda: self.pick("", "", self.small(), "i", "nil")
        return self.pick(f"{bound()}:{bound()}", f"{bound()}:{bound()}:{self.pick('', '1', '-1', '2', '-2', '3')}", "::-1")

    def format_spec(self):
        fill, align = self.pick("", "", "*", "0", "é"), self.pick("<", ">", "^", "=")
        head = fill + align if fill else self.pick("", align)
        return "{:" + head + self.pick("", "+", " ") + self.pick("", "0") + self.pick("", "6", "12") + self.pick("", ",", "_") + self.pick(
            "", "d", "x", ".2f", ".3e", "g", "%", "b", "s", ".1%") + "}"

    def percent_spec(self):
        return self.pick("", "-", "0", "+", " ", "#") + self.pick("", "5", "12") + self.pick("", ".2", ".0") + self.pick(*"sdrxfgeic")


def has_address(text):
    return re.search(r" at 0x[0-9a-f]+", text) is not None


def compare(cases):
    """(disagreements, how many we refused that Jinja2 can do)"""
    wrong, refused = [], 0
    for case, answer in zip(cases, ours(cases)):
        kind, text = render(case["template"], case["context"])
        if kind == "ok" and has_address(text):
            kind = "error"
        if kind == "ok" and not answer["ok"] and answer["status"] in ("unsupported", "limit"):
            refused += 1
        elif (kind == "ok") != answer["ok"] or (answer["ok"] and answer["out"] != text):
            wrong.append(f"{case['template']!r}\n  Jinja2: {kind} {text!r}\n  here:   {answer}")
    return wrong, refused


def test_expressions():
    maker = Maker(SEED)
    cases = [{"template": "{{ " + maker.make("any_kind", 3) + " }}", "context": CONTEXT} for _ in range(CASES)]
    wrong, refused = compare(cases)
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:10])
    assert refused < len(cases) // 12


class Statements(Maker):
    """Small templates of nested statements over a few names, so that scopes collide."""

    names = ["x", "y", "i", "m"]

    def body(self, depth, loop):
        return "".join(self.statement(depth, loop) for _ in range(self.r.randint(1, 3)))

    def value(self):
        plain = ["1", "x", "y", "i", "[x, y]", "x ~ y", "ns.v", "l", "m", "d.a"]
        return self.r.choice(plain * 6 + ["varargs", "kwargs", "caller", "loop", "loop.index"])

    def loop_value(self):
        return self.pick("loop.index", "loop.last", "loop.first", "loop.length", "loop.previtem", "loop.nextitem", "loop.changed(x)", "loop.depth",
                         "loop.cycle(1, 2)", "loop", "loop.revindex0", "ns.v ~ loop.index0", "x")

    def statement(self, depth, loop):
        name, b = self.r.choice(self.names), (lambda inside=loop: self.body(depth - 1, inside))
        if depth <= 0:
            return self.pick("{{ " + self.value() + " }};", f"{{% set {name} = {self.value()} %}}", f"{{% set ns.v = {self.value()} %}}", "text ")
        options = [
            lambda: "{{ " + self.value() + " }},",
            lambda: f"{{% set {name} = {self.value()} %}}",
            lambda: f"{{% set x, y = {self.pick('[1, 2]', 'y, x', 'l[:2]')} %}}",
            lambda: f"{{% set ns.v = {self.value()} %}}",
            lambda: f"{{% set {name} %}}{b()}{{% endset %}}",
            lambda: f"{{% set {name} | upper %}}{b()}{{% endset %}}",
            lambda: f"{{% if {self.value()} %}}{b()}{{% endif %}}",
            lambda: f"{{% if {self.value()} %}}{b()}{{% elif {self.value()} %}}{b()}{{% else %}}{b()}{{% endif %}}",
            lambda: f"{{% for {name} in {self.pick('l', '[m, 2]', '[x]', 'range(2)', 'd', '[]')} %}}{b(True)}{{% endfor %}}",
            lambda: f"{{% for {name} in l if {self.value()} %}}{b(True)}{{% else %}}{b()}{{% endfor %}}",
            lambda: f"{{% for x, y in {self.pick('d.items()', '[[1, 2]]', '[(x, 1)]')} %}}{b(True)}{{% endfor %}}",
            lambda: f"{{% for {name} in [1, [2, [3]]] recursive %}}{{{{ loop({name}) if {name} is iterable else {name} }}}}{b(True)}{{% endfor %}}",
            lambda: f"{{% macro {name}({self.pick('', 'x', 'x, y=1', 'x=y, y=x')}) %}}{b(False)}{{% endmacro %}}",
            lambda: f"{{{{ {name}({self.pick('', '1', '1, 2', 'y=2', '1, 2, 3', 'x=1, k=2')}) if {name} is callable and {name} is defined }}}}",
            lambda: f"{{% if {name} is callable and {name} is defined %}}{{% call {name}({self.pick('', '5')}) %}}{b(False)}{{% endcall %}}{{% endif %}}",
            lambda: f"{{% macro {name}() %}}[{{{{ caller({self.pick('', '1')}) }}}}]{b(False)}{{% endmacro %}}{{% call {name}() %}}{b(False)}{{% endcall %}}",
            lambda: f"{{% filter upper %}}{b()}{{% endfilter %}}",
            lambda: f"{{% with {name} = {self.value()}, y = x %}}{b()}{{% endwith %}}",
            lambda: f"{{% generation %}}{b(False)}{{% endgeneration %}}",
        ]
        if loop:
            options += [lambda: "{{ " + self.loop_value() + " }}:", lambda: f"{{% set {name} = {self.loop_value()} %}}"] * 2
            options += [lambda: f"{{% if {self.value()} %}}{{% {self.pick('break', 'continue')} %}}{{% endif %}}"] * 2
        return self.r.choice(options)()


def test_statements():
    maker = Statements(SEED + 1)
    context = {"l": [1, 2, 3], "d": {"a": 1, "b": 2}, "x": "X", "i": 0}
    head = "{% set ns = namespace(v=0) %}"
    cases = [{"template": head + maker.body(3, False), "context": context} for _ in range(CASES // 2)]
    wrong, refused = compare(cases)
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:10])
    assert refused < len(cases) // 12


def test_white_space():
    r = random.Random(SEED + 2)
    space = ["", " ", "\n", "  \n", "\t", "\n\n", " \n  ", "\r\n", "x", "x \n", "\x0b", "\u00a0\n", "\u2028"]
    tags = ["{%s set a = 1 %s}", "{{%s a %s}}", "{#%s note %s#}", "{%%%s if true %s%%}", "{%%%s endif %s%%}", "{%%%s raw %s%%}", "{%%%s endraw %s%%}",
            "{%%%s for a in [1, 2] %s%%}", "{%%%s endfor %s%%}", "{%%%s set b %s%%}", "{%%%s endset %s%%}", "{{%s '\n' %s}}"]
    cases = []
    for _ in range(CASES):
        source, opened = "", []
        for _ in range(r.randint(1, 6)):
            source += "".join(r.choice(space) for _ in range(r.randint(0, 3)))
            tag = r.choice(tags)
            if "end" in tag and (not opened or r.random() < 0.7):
                continue
            for word in ("if", "raw", "for", "set b"):
                if f" {word} " in tag or f" {word} true" in tag:
                    opened.append(word.split()[0])
            if tag == tags[0]:
                tag = "{%%%s set a = 1 %s%%}"
            source += tag % (r.choice(["", "", "-", "+"]), r.choice(["", "", "-", "+" if "{{" not in tag else ""]))
        while opened:
            source += r.choice(space) + "{%%%s end%s %s%%}" % (r.choice(["", "-", "+"]), opened.pop(), r.choice(["", "-", "+"]))
            source += r.choice(space)
        cases.append({"template": source, "context": {}})
    wrong, _ = compare(cases)
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:10])


@pytest.mark.parametrize("cls", ["upper", "lower", "title", "capitalize", "swapcase", "strip", "isalpha", "isdigit", "isspace", "isalnum"])
def test_every_character(cls):
    """All of the Basic Multilingual Plane and of three planes above, alone and after a letter."""
    import unicodedata

    cases = []
    for start in list(range(0, 0x10000, 0x200)) + list(range(0x10000, 0x20000, 0x400)):
        chars = [chr(c) for c in range(start, start + (0x200 if start < 0x10000 else 0x400)) if not 0xD800 <= c < 0xE000]
        chars = [c for c in chars if unicodedata.category(c) != "Cn"]  # assigned in newer versions of Unicode
        cases.append({"template": "{% for c in x %}{{ c." + cls + "() }}|{{ ('a' ~ c ~ 'Σ')." + cls + "() }}|{% endfor %}", "context": {"x": chars}})
    wrong, _ = compare(cases)
    assert not wrong, wrong[0][:2000]


def test_every_character_is_shown_alike():
    import unicodedata

    cases = []
    for start in range(0, 0x20000, 0x400):
        chars = [chr(c) for c in range(start, start + 0x400) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
        cases.append({"template": "{{ x }}{{ x|tojson }}{{ x|tojson(ensure_ascii=true) }}{{ x|map('wordcount')|list }}", "context": {"x": chars}})
    wrong, _ = compare(cases)
    assert not wrong, wrong[0][:2000]


def test_word_wrap():
    r = random.Random(SEED + 4)
    parts = ["a", "b", "ab", "é", "1", "-", "--", "---", " ", "  ", "\n", ".", '"', "\t", "word", "-x", "안", "\u00a0", "_", "\r\n", "!?"]
    cases = []
    for _ in range(CASES // 2):
        arguments = f"{r.randint(1, 9)}, {r.choice(['true', 'false'])}, {r.choice(['none', repr('|')])}, {r.choice(['true', 'false'])}"
        text = "".join(r.choice(parts) for _ in range(r.randint(0, 14)))
        cases.append({"template": "{{ x|wordwrap(" + arguments + ") }}", "context": {"x": text}})
    wrong, _ = compare(cases)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])


def test_floats():
    r = random.Random(SEED + 3)
    values = [0.1, 1e22, 1e-5, 5e-324, 2**-44, 1e16, 123456.789e3, 2.5, 1e15 + 0.3, 9007199254740993.0, 1.7976931348623157e308]
    values += [2.0**k for k in range(-1074, 1024, 7)]
    values += [r.uniform(-1, 1) * 10 ** r.randint(-320, 300) for _ in range(2000)]
    values += [round(r.uniform(-1000, 1000), r.randint(0, 4)) for _ in range(500)]
    source = "{{ x }} {{ x|round(2) }} {{ '%.3f' % x }} {{ '%g' % x }} {{ '%.4e' % x }} {{ [x]|tojson }} {{ x|string|float == x }}"
    cases = [{"template": source, "context": {"x": x}} for x in values]
    wrong, _ = compare(cases)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])
