"""Chat templates against Jinja2: templates with the constructs that published models use, and the edges of the
language one by one."""

import json
import pathlib

import pytest
from template_reference import ours, render

FOLDER = pathlib.Path(__file__).parent / "templates"
TEMPLATES = sorted(FOLDER.glob("*.jinja"))

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a <city> & \"more\"",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where?", "enum": ["서울", "Köln"]},
                    "days": {"type": "integer", "default": 3, "maximum": 10},
                    "units": {"type": ["string", "null"]},
                    "where": {"type": "object", "properties": {"at": {"type": "array", "items": {"type": "number"}}}, "required": ["at"]},
                },
                "required": ["city"],
            },
            "return": {"type": "string"},
        },
    },
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {"id": "abcdef123", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "x": None, "f": 1.5, "l": [1, "a"]}}}
CALL_TEXT = {"id": "abcdef124", "type": "function", "function": {"name": "now", "arguments": "{\"a\": 1}"}}

CHATS = {
    "one": [message("user", "Hello")],
    "system": [message("system", "You are good."), message("user", "Hi <b>&amp;</b>")],
    "turns": [message("system", "  S\n"), message("user", "안녕 😀"), message("assistant", "  Hey\n"), message("user", "What's \"up\"?\r\n\r\nx")],
    "no system": [message("user", "a"), message("assistant", "b"), message("user", "c"), message("assistant", "d")],
    "empty texts": [message("user", ""), message("assistant", ""), message("user", "x")],
    "parts": [message("user", [{"type": "text", "text": " one "}, {"type": "image"}, {"type": "text", "text": "two"}])],
    "system parts": [message("system", [{"type": "text", "text": "sys"}]), message("user", [{"type": "text", "text": "q"}])],
    "call": [message("user", "w?"), message("assistant", "", tool_calls=[CALL]), message("tool", "{\"t\": 3}", name="weather", tool_call_id="abcdef123"),
             message("assistant", "3."), message("user", "ok")],
    "calls": [message("user", "w?"), message("assistant", "let me see", tool_calls=[CALL, CALL_TEXT]), message("tool", "sunny", tool_call_id="abcdef123"),
              message("tool", "12:00", tool_call_id="abcdef124")],
    "thinking": [message("user", "q"), message("assistant", "<think>\nhmm\n</think>\n\nanswer"), message("user", "more"), message("assistant", "x", thinking="why", reasoning_content="why")],
    "switches": [message("system", "Be terse. /no_think"), message("user", "q /think")],
    "wrong order": [message("user", "a"), message("user", "b")],
    "developer": [message("developer", "d"), message("user", "q")],
    "unknown role": [message("robot", "beep")],
    "no content": [message("user", "q"), {"role": "assistant", "tool_calls": [CALL]}, message("assistant", None)],
    "nothing": [],
}

SETTINGS = [
    {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True},
    {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": False, "tools": None, "enable_thinking": False},
    {"bos_token": "", "eos_token": "<e>", "add_generation_prompt": True, "tools": TOOLS, "enable_thinking": True, "thinking": True,
     "documents": [{"title": "T", "text": "body"}], "reasoning_effort": "high", "tools_in_user_message": False},
    {"bos_token": "<s>", "eos_token": "</s>", "tools": TOOLS, "builtin_tools": ["weather", "code_interpreter"], "date_string": "1 May 2025"},
    {"add_generation_prompt": True},
]


def disagreements(cases):
    wrong, good = [], 0
    for case, answer in zip(cases, ours(cases)):
        kind, text = render(case["template"], case["context"])
        good += kind == "ok"
        if kind == "error" and not answer["ok"] and "partial" not in answer:
            continue
        if kind == "ok" and answer == {"ok": True, "out": text}:
            continue
        wrong.append(f"{case['template'][:300]!r} {json.dumps(case['context'])[:300]}\n  Jinja2: {kind} {text!r}\n  here:   {answer}")
    return wrong, good


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.stem)
def test_published_constructs(path):
    source = path.read_text()
    cases = [{"template": source, "context": {"messages": chat, **setting}} for chat in CHATS.values() for setting in SETTINGS]
    wrong, good = disagreements(cases)
    assert not wrong, wrong[0]
    assert good >= 10, "hardly any chat can be rendered: the template exercises nothing"


def test_there_are_enough_templates():
    assert len(TEMPLATES) >= 40


# Each line: one template. What it should give is what Jinja2 gives, an error included.
EDGES = r"""
{{ 1 }}{{ 1.0 }}{{ true }}{{ none }}{{ undefined_name }}{{ 'a' 'b' }}{{ "\u00e9\x41\101\n" }}{{ '\q' }}{{ '\é' }}
{{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5e1_0 }} {{ 00 }} {{ 1e5 }} {{ .5 }}
{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}
{{ 1 if false }}{{ (1 if false) is undefined }}{{ 1 if 0 else 2 if 0 else 3 }}
{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 == true }} {{ 'a' in 'abc' not in ['x'] }}
{{ not true and false or true }} {{ not not 1 }} {{ - - 1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ +1 }} {{ -1|abs }} {{ 2 * 3 ~ 1 + 4 }}
{{ 'a' ~ 1 ~ none ~ 2.50 ~ [1] }} {{ 1 ~ 2 + 3 }}
{{ [1, 2, 3][-1] }} {{ [1, 2][5] }} {{ 'abc'[1] }} {{ {'a': 1}['a'] }} {{ {'a': 1}.a }} {{ {'a': 1}.b }} {{ (1, 2).0 }} {{ [[1]].0.0 }}
{{ {'items': 1}['items'] }} {{ {'x': 1}.items() }} {{ {'x': 1}.keys() }} {{ {'x': 1}.values()|list }} {{ {1: 2, none: 3, true: 4} }}
{{ {1: 'int', '1': 'str'}|tojson }} {{ {none: 1, true: 2, 1.5: 3}|tojson }}
{{ {'b': 1, 'a': [1, {'x': none}]}|tojson(indent=2, sort_keys=true) }} {{ []|tojson(indent=2) }} {{ {}|tojson(2) }}
{{ 'é\u2028\x7f\x00"\\/'|tojson }} {{ 'é😀\x7f'|tojson(ensure_ascii=true) }} {{ [1, 2]|tojson(separators=('; ', '=')) }} {{ [1]|tojson(indent='--') }}
{{ '<a> & "b"'|tojson }} {{ '<a>'|e }} {{ '<a>'|safe ~ '<b>' }} {{ ('<a>'|safe) + '<b>' }} {{ '<b>' + ('<a>'|safe) }} {{ ['<'|safe] }} {{ '<a>'|e|e }}
{{ 'a b c'.split() }} {{ ' a  b '.split(' ') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'abc'.split('') }}
{{ 'ab\ncd\r\nef\n'.splitlines() }} {{ 'a\n'.splitlines(true) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'xxaxx'.strip('x') }} {{ '\u3000a\u00a0'.strip() }}| {{ 'abc'.lstrip('ba') }} {{ 'aé'.rstrip('é') }}
{{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.rfind('b') }} {{ 'abc'.index('z') }}
{{ '한글 abc'.find('a') }} {{ '한글'|length }} {{ '한글'[::-1] }} {{ 'a한b글c'[1::2] }} {{ 'a한b글c'[3:1:-1] }} {{ '한'.center(5, '*') }}
{{ 'straße ΑΣ ΑΣΑ ﬁ ŉ'.upper() }} {{ 'ΑΣ ΑΣΑ İ'.lower() }} {{ 'ǆ ﬁ it\'s'.title() }} {{ 'ǆABC'.capitalize() }} {{ 'aBß'.swapcase() }}
{{ "hello world it's (me)"|title }} {{ 'ǆ-ﬁ'|title }} {{ 'HELLO wORLD'|capitalize }}
{{ 'a%sb%d' % ('x', 3) }} {{ '%5.2f|%-5s|%05d|%+d|%x|%#o|%e|%g|%c|%r|%%' % (1.005, 'é', 42, 3, 255, 8, 12345.678, 0.0001, 65, 'q') }}
{{ '%(a)s %(b)d' % {'a': 1, 'b': 2.9} }} {{ '%s' % [1, 2] }} {{ '%s %s' % (1,) }}
{{ '%d' % 'x' }}
{{ '{} {} {{}}'.format(1, 'a') }} {{ '{0} {1} {0}'.format('a', 'b') }} {{ '{a.b} {c[0]} {d!r:>6}'.format(a={'b': 1}, c=[2], d='x') }} {{ '{:,} {:_x} {:08.3f} {:^9} {:*<6} {:+d} {:%}'.format(1234567, 65535, 3.14159, 'mid', 'l', 5, 0.25) }}
{{ '{} {0}'.format(1) }}
{{ '{:d}'.format('x') }}
{{ 7.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456789012345680.0 }} {{ 0.1 + 0.2 }} {{ 1 / 3 }} {{ 2.0 ** 0.5 }} {{ -0.0 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 // -2 }} {{ 1 // 0.3 }} {{ 2 ** -1 }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 42.55|round }} {{ 42.55|round(1, 'floor') }} {{ 42|round }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ -1.5|round(0, 'ceil') }} {{ 1234|round(-2, 'floor') }}
{{ '42'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '0x1f'|int(base=16) }} {{ '0b11'|int(0, 2) }} {{ 3.99|int }} {{ none|int }} {{ ' 1_0 '|int }} {{ '1__0'|int }} {{ true|int }} {{ []|int }}
{{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(2) }} {{ 3|float }} {{ ' 1e3 '|float }} {{ '1_0.5'|float }} {{ none|float }}
{{ [3, 1, 2]|sort }} {{ ['b', 'A', 'a']|sort }} {{ ['b', 'A', 'a']|sort(case_sensitive=true) }} {{ [1, 'a']|sort }}
{{ [{'a': 2, 'b': 1}, {'a': 1, 'b': 2}]|sort(attribute='a,b') }} {{ [{'a': {'b': 2}}, {'a': {'b': 1}}]|map(attribute='a.b')|list }} {{ [[1, 2], [3, 4]]|map(attribute=1)|list }}
{{ ['a', 'A', 'b']|unique|list }} {{ [1, 1.0, true]|unique|list }} {{ [1, 2, 3, 4, 5]|batch(2, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'f')|list }}
{{ [1, 2, 3]|sum }} {{ [[1], [2]]|sum(start=[]) }} {{ [{'v': 1}, {'v': 2.5}]|sum('v') }} {{ [1, 5, 3]|max }} {{ ['b', 'A']|min }} {{ []|max }}{{ []|first }}{{ []|last }}
{{ [1, 2]|first }} {{ [1, 2]|last }} {{ 'abc'|last }} {{ {'a': 1}|first }} {{ range(3)|last }} {{ [1, 2]|reverse|list }} {{ 'abc'|reverse }} {{ {'a': 1, 'b': 2}|reverse|list }}
{{ [1, 2]|map('string')|last }}
{{ [1, 2]|map('nothing')|list }}
{% set g = [1, 2]|map('string') %}{{ g|list }}{{ g|list }}{{ g is iterable }}{{ g is sequence }}{{ [1, 'x']|map('nothing') is defined }}
{{ [0, 1, '', 'a', none]|select|list }} {{ [1, 2, 3]|reject('odd')|list }} {{ [1, 2, 3]|select('gt', 1)|list }} {{ ['a', 1]|select('string')|list }} {{ [1]|select('nothing')|list }}
{{ [{'a': 1}, {'a': 0}, {}]|selectattr('a')|list }} {{ [{'a': 1}, {}]|rejectattr('a', 'defined')|list }} {{ [{'a': 1}]|selectattr('a', 'in', [1])|list }}
{{ {'b': 1, 'A': 2}|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(by='value', reverse=true) }} {{ {'a': 1}|items|list }} {{ none|items|list }}
{{ undefined_name|items|list }} {{ undefined_name|length }} {{ undefined_name|list }} {{ undefined_name|upper }}| {{ undefined_name|default('d') }} {{ ''|default('d') }} {{ ''|default('d', true) }} {{ none|d('x') }}
{{ undefined_name.x }}
{{ undefined_name + 1 }}
{{ undefined_name|int }}
{{ undefined_name == other_name }} {{ undefined_name == none }} {{ undefined_name in [1] }} {{ 1 in undefined_name }} {{ [undefined_name] }} {{ undefined_name is sequence }} {{ undefined_name is callable }} {{ not undefined_name }}
{{ undefined_name < 1 }}
{{ undefined_name|tojson }}
{{ [1].append(2) }}
{{ [1].append is defined }}{{ {}.update }}|{{ [1].copy() }}{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}{{ {'a': 1}.copy() }}{{ {'a': 1}.get('b', 2) }}{{ (1, 1).count(1) }}
{{ x._private }}|{{ {'_a': 1}._a }}
{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a + ns.b }}{{ ns.c is defined }}{{ ns['a'] }}{{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.b }}{% set ns._x = 1 %}
{% set d = {} %}{% set d.x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, (e, f)) = (1, 'xy') %}{{ c }}{{ e }}{{ f }}{% set a, b = b, a %}{{ a }}{{ b }}
{% set a, b = [1] %}
{% set a = 1, %}{{ a }}{% set b %}x{{ a }}{% endset %}{{ b }}{% set c | upper | replace('X', 'y') %}x{% endset %}{{ c }}
{% for a in [] %}{{ a }}{% else %}none{% endfor %}{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{% for c in 'héy' %}{{ c }}.{% endfor %}{% for x in 5 %}{% endfor %}
{% for i in range(5) if i is odd %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}{{ i }} {% endfor %}
{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop }}{% endfor %}
{% for i in [1, [2, [3, 4]], 5] recursive %}{{ loop.depth0 }}{{ loop(i) if i is iterable else i }}{% else %}e{% endfor %}
{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% break %}
{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% for loop in [1] %}{% endfor %}
{% for i in [1, 2] %}{% for j in [3] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}{{ loop }}
{% macro f(a, b=2, *c) %}{% endmacro %}
{% macro f(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, 2, 3, k=4) }}{{ f(b=1) }}{{ f(*[1, 2], **{'z': 3}) }}{{ f }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}
{% macro f(a) %}{{ a is undefined }}{% endmacro %}{{ f() }}{{ f.x is defined }}
{% macro f() %}[{{ caller(1, y=2) }}]{% endmacro %}{% call(x, y=3) f() %}{{ x }}{{ y }}{% endcall %}{{ f() }}
{% macro f(caller) %}{{ caller }}{% endmacro %}{{ f(1) }}
{% macro f(caller=none) %}{{ caller() if caller else 'no' }}{% endmacro %}{{ f() }}{% call f() %}yes{% endcall %}
{% macro outer() %}{% macro inner() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ inner() }}{% endmacro %}{% set x = 1 %}{{ outer() }}{{ x }}
{% macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(5) }}
{% if x is defined %}{% set x = x ~ '!' %}{% endif %}{{ x }}{% if y is undefined %}{% set y = 1 %}{% endif %}{{ y }}
{% set x %}{{ x }}{% endset %}[{{ x }}]
{% with a = 1, b = a %}{{ a }}{{ b }}{% set c = 5 %}{% endwith %}{{ a }}{{ c }}
{% filter upper | trim %} a{{ 'b' }} {% endfilter %}|{% filter replace('a', 'b') %}aa{% endfilter %}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}{% set j = joiner('; ') %}{{ j() }}x{{ j() }}y
{{ range(3) }} {{ range(1, 10, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(10)[2:5] }} {{ range(3)[1] }} {{ 2 in range(3) }} {{ range(0) is sequence }}
{{ range(100001) }}
{{ dict(a=1) }} {{ dict([('a', 1)], b=2) }} {{ dict.fromkeys('ab', 0) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %j %a %A %b %B %d %e %-d %-m %y %p %I %U %W %w %u %V %G %% %D %F %T %R %x %X %c %z %Z %h %C %n') }}
{{ 1 is odd }} {{ 4 is divisibleby(2) }} {{ 4 is divisibleby 3 }} {{ 1 is sameas 1 }} {{ none is sameas none }} {{ 'A' is upper }} {{ 'a1' is lower }} {{ 1 is number }} {{ true is integer }} {{ true is number }} {{ 1.0 is float }}
{{ 1 is eq 1 }} {{ 1 is lt(2) }} {{ 1 is in [1] }} {{ 1 is not in [1] }} {{ 'trim' is filter }} {{ 'nothing' is filter }} {{ 'odd' is test }} {{ {} is mapping }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ range is callable }}
{{ 1 is nothing }}
{{ 1|nothing }}
{% if false %}{{ 1|nothing }}{{ 1 is nothing }}{% endif %}ok
{% if true %}{{ 1|nothing }}{% endif %}
{{ 'abc'|attr('upper') is callable }} {{ {'a': 1}|attr('a') is defined }} {{ 'a,b'|replace(',', ';') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 5|replace(5, 6) }} {{ 'a'|center(4) }}|
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }} {{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent('>', blank=true) }}
{{ 'one two_three 4!'|wordcount }} {{ 'a b/ü?'|urlencode }} {{ {'a': 'b c', 'd': 1}|urlencode }} {{ {'class': 'x<y', 'id': none, 'n': 3}|xmlattr }} {{ '<b>x</b>  y'|striptags }} {{ 1000|filesizeformat }} {{ 123456789|filesizeformat(true) }} {{ 1|filesizeformat }}
{{ 'The quick-brown fox -- jumps--over it\n\n  extraordinarily well'|wordwrap(9) }}|{{ 'aaaaaaaaaa bb'|wordwrap(4, false) }}|{{ 'well-known-fact a'|wordwrap(6, wrapstring='/', break_on_hyphens=false) }}|{{ 'a'|wordwrap(0) }}
{{ [{'c': 'x', 'v': 1}, {'c': 'y', 'v': 2}, {'c': 'X', 'v': 3}]|groupby('c') }} {% for g in [{'c': 1}, {'c': 1}]|groupby('c') %}{{ g.grouper }}{{ g.list }}{% endfor %} {% for a, b in [{'c': 1}, {}]|groupby('c', default=0) %}{{ a }}{{ b }}{% endfor %}
{{ [1, 2] + [3] }} {{ (1,) + (2,) }} {{ [1] * 2 }} {{ 2 * 'ab' }} {{ [1] + (2,) }}
{{ 'a' + 1 }}
{{ [1, 2] < [1, 3] }} {{ (1, 'a') == (1, 'a') }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' < 'b' }} {{ 'a' < 1 }}
{{ ''.join(['a', 'b']) }} {{ ', '.join({'a': 1, 'b': 2}) }} {{ ''.join([1]) }}
{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('c', 1, 2) }} {{ 'abc'.startswith('b', 1) }} {{ 'a'.startswith('', 2) }} {{ 'aXbX'.replace('X', '') }} {{ 'ab'.replace('', '-') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }}
{{ 'ab-cd'.partition('-') }} {{ 'abcd'.rpartition('-') }} {{ 'x'.zfill(3) }} {{ '-5'.zfill(4) }} {{ 'ab'.ljust(4, '.') }} {{ 'ab'.rjust(4) }} {{ 'preX'.removeprefix('pre') }} {{ 'aX'.removesuffix('X') }}
{{ "it's" ~ ['it\'s', "q\"", 'both\'"', 'a\\b', 'é', '\u200b', '\n'] }}
{{ [1, 2, 3][::0] }}
{{ none[0] }}|{{ 5['x'] }}|{{ none.x }}
{{ {[]: 1} }}
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
{% do 1 %}
{% unknown %}
{{ 1 +
{{ (1, 2 }}
{{ 'abc }}
{# never closed
{% raw %} never closed
{% if 1 %}
{% for %}{% endfor %}
{{ a b }}
{{ f(1, a=2, 3) }}
{{ f(a=1, a=2) }}
{{ x.1.2 }}|{{ x. }}
{% set 1 = 2 %}
{% set x.y.z = 1 %}
{% macro 1() %}{% endmacro %}
{% call 1 %}{% endcall %}
{% else %}
{% endfor %}
{{ "unclosed }} text
{{ $ }}
a{{ 1 }}{#- x -#} b {%- if 1 -%} c {%- endif +%} d
""".strip("\n").split("\n")


# What Jinja2 does and we refuse aloud: texts with an address or at random, attributes of Python's own, and what its
# compiler happens to make of a wrong slice of a constant.
REFUSED = r"""
{{ {'items': 1}.items }}
{{ [1, 2]|map('string') }}
{{ ''.__class__ }}
{{ lipsum() }}
{{ [1, 2, 3]['a':] }}
{{ 2 ** 64 }}
{{ 'ab'|pprint }}
{{ [1]|random }}
{{ 'x'.encode() }}
{{ é }}
{% block x %}{% endblock %}
{% autoescape true %}{% endautoescape %}
{{ self }}
{{ (-1) ** 0.5 }}
{{ 1.5.real }}
{{ '{:010,}'.format(1234) }}
{{ strftime_now('%f') }}
""".strip("\n").split("\n")


@pytest.mark.parametrize("source", REFUSED)
def test_refused_aloud(source):
    [answer] = ours([{"template": source, "context": {"é": 1}}])
    assert answer.get("status") == "unsupported" and "partial" not in answer, answer
    assert answer["error"].startswith(("line 1: ", "template: ")), answer


@pytest.mark.parametrize("source", EDGES)
def test_edge(source):
    wrong, _ = disagreements([{"template": source, "context": {"x": "X"}}])
    assert not wrong, wrong[0]


def test_errors_are_one_line_with_the_line():
    answers = ours([{"template": "a\nb{{ x.y.z }}", "context": {"x": {}}}, {"template": "\n\n{% if %}", "context": {}}])
    assert answers[0] == {"ok": False, "status": "invalid", "error": "line 2: 'dict object' has no attribute 'y'"}
    assert answers[1]["error"].startswith("line 3: expected an expression")
