"""The reference for chat templates: Jinja2 set up as transformers sets it up, and the driver of our interpreter."""

import contextlib
import datetime
import functools
import json
import os
import pathlib
import subprocess

import jinja2
import jinja2.ext
import jinja2.utils
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOP = pathlib.Path(__file__).resolve().parents[2]
NOW = 1721998800  # 26 July 2024, about noon in Europe


class Generation(jinja2.ext.Extension):
    """{% generation %}: what is inside is rendered as a call block."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment(now=NOW):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(now).strftime(format)

    class Dict:
        def __call__(self, *args, **kwargs):
            return dict(*args, **kwargs)

        def fromkeys(self, *args, **kwargs):
            return dict.fromkeys(*args, **kwargs)

    def check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            self, args = args[0], args[1:]
            attrs = dict(*args, **kwargs)
            for name in attrs:
                check_name(name)
            jinja2.utils.Namespace.__init__(self, attrs)

        def __setitem__(self, name, value):
            check_name(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=Dict(), namespace=Namespace)
    return env


ENV = environment()


@functools.lru_cache
def compiled(source):
    return ENV.from_string(source)


def render(source, context):
    """("ok", text) or ("error", why)."""
    try:
        with contextlib.suppress(SyntaxWarning):
            text = compiled(source).render(**json.loads(json.dumps(context)))
        text.encode()
        return "ok", text
    except Exception as e:  # whatever a template can raise
        return "error", f"{type(e).__name__}: {e}"


def driver():
    path = pathlib.Path(os.environ.get("CHURON", TOP / "build" / "release" / "churon")).resolve().parent
    return path / "tools" / "render_template"


def ours(cases, *args, timeout=300):
    """Answers of our interpreter to a list of {"template", "context", ...}."""
    lines = "".join(json.dumps({"now": NOW, **c}) + "\n" for c in cases)
    done = subprocess.run([str(driver()), *args], input=lines.encode(), stdout=subprocess.PIPE, timeout=timeout)
    assert done.returncode == 0, f"render_template ended with {done.returncode}"
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return answers
