"""The unmodified openai client against `churon serve`, on the real model."""

import math

import openai
import pytest

from serve_helper import Server


@pytest.fixture(scope="module")
def server(churon, smollm2):
    with Server(churon, smollm2, "--ctx", "2048") as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as c:
        yield c


def ask(client, server, text="Why is the sky blue?", **more):
    more.setdefault("max_tokens", 24)
    return client.chat.completions.create(model=server.model, messages=[{"role": "user", "content": text}], **more)


def test_models(client, server):
    assert [m.id for m in client.models.list()] == [server.model]
    assert client.models.retrieve(server.model).id == server.model
    with pytest.raises(openai.NotFoundError) as e:
        client.models.retrieve("gpt-4o")
    assert server.model in e.value.message and "gpt-4o" in e.value.message
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "a"}])


def counted(usage):
    """What does not depend on what the prefix cache holds at the time."""
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def test_chat_and_stream_say_the_same(client, server):
    whole = ask(client, server, temperature=0)
    assert whole.object == "chat.completion" and whole.model == server.model
    assert whole.choices[0].message.role == "assistant" and len(whole.choices[0].message.content) > 20
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 24
    chunks = list(ask(client, server, temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].choices == [] and counted(chunks[-1].usage) == counted(whole.usage)
    assert len({c.id for c in chunks}) == 1 and chunks[0].id != whole.id
    assert all(c.usage is None for c in chunks[:-1])
    plain = list(ask(client, server, temperature=0, stream=True, max_tokens=2))
    assert all(c.choices for c in plain)


def test_headers(client, server):
    raw = client.chat.completions.with_raw_response.create(
        model=server.model, messages=[{"role": "user", "content": "a"}], max_tokens=1,
        extra_headers={"X-Request-Id": "my-id.7"})
    h = raw.headers
    assert h["x-churon-request-id"] == h["x-request-id"] == "my-id.7" and raw.parse()._request_id == "my-id.7"
    assert h["x-churon-model"] == server.model and len(h["x-churon-digest"]) == 64 and h["x-churon-version"]
    ids = {client.with_raw_response.models.list().headers["x-request-id"] for _ in range(20)} if hasattr(
        client.with_raw_response, "models") else set()
    ids |= {client.models.with_raw_response.list().headers["x-request-id"] for _ in range(20)}
    assert len(ids) >= 20
    bad = client.models.with_raw_response.list(extra_headers={"X-Request-Id": "a b<script>"})
    assert bad.headers["x-request-id"] != "a b<script>"


def test_seeds(client, server):
    def text(**more):
        return ask(client, server, "Write a story.", temperature=1.0, **more).choices[0].message.content

    assert text(seed=7) == text(seed=7)
    assert text(seed=7) != text(seed=8)
    assert text(seed=-1) == text(seed=-1)
    assert len({text() for _ in range(3)}) == 3, "without a seed each answer draws anew"


def test_n_choices(client, server):
    four = ask(client, server, "Write a story.", n=4, seed=3, temperature=1.0)
    texts = [c.message.content for c in four.choices]
    assert [c.index for c in four.choices] == [0, 1, 2, 3] and len(set(texts)) == 4
    one = ask(client, server, "Write a story.", seed=3, temperature=1.0)
    assert one.choices[0].message.content == texts[0], "choice 0 is what n=1 gives"
    assert four.usage.prompt_tokens == one.usage.prompt_tokens and four.usage.completion_tokens == 96
    streamed = {i: "" for i in range(4)}
    for c in ask(client, server, "Write a story.", n=4, seed=3, temperature=1.0, stream=True):
        for choice in c.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert list(streamed.values()) == texts


def test_best_of(client, server):
    def complete(**more):
        return client.completions.create(model=server.model, prompt="Once upon a time", max_tokens=12, temperature=1.0, seed=11,
                                         logprobs=0, **more)

    def mean(choice):
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    six = complete(n=6, best_of=6)
    ranked = sorted(six.choices, key=mean, reverse=True)
    best = complete(n=2, best_of=6)
    assert [c.text for c in best.choices] == [c.text for c in ranked[:2]] and [c.index for c in best.choices] == [0, 1]
    assert counted(best.usage) == counted(six.usage), "all that was computed counts"
    assert [c.text for c in six.choices] != [c.text for c in ranked], "equal numbers keep their order"
    plain = client.completions.create(model=server.model, prompt="Once upon a time", max_tokens=12, temperature=1.0, seed=11, best_of=6)
    assert plain.choices[0].text == ranked[0].text and plain.choices[0].logprobs is None
    with pytest.raises(openai.BadRequestError) as e:
        complete(n=2, best_of=6, stream=True)
    assert e.value.param == "best_of"


def test_priority_and_salt_do_not_change_an_answer(client, server):
    plain = ask(client, server, temperature=0).choices[0].message.content
    for more in ({"priority": -3}, {"priority": 7}, {"cache_salt": "mine"}):
        assert ask(client, server, temperature=0, extra_body=more).choices[0].message.content == plain
    assert ask(client, server).usage.prompt_tokens_details.cached_tokens >= 0


def test_stop(client, server):
    whole = ask(client, server, "Why is the sky blue?", temperature=0, max_tokens=40).choices[0].message.content
    word = next(w for w in whole.split()[3:] if len(w) > 2)
    for stop in (word, [word, "never to be seen"]):
        r = ask(client, server, "Why is the sky blue?", temperature=0, max_tokens=40, stop=stop)
        assert r.choices[0].finish_reason == "stop"
        assert r.choices[0].message.content == whole[: whole.index(word)]
        chunks = list(ask(client, server, "Why is the sky blue?", temperature=0, max_tokens=40, stop=stop, stream=True))
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole[: whole.index(word)]
    short = ask(client, server, "Say yes.", temperature=0, max_tokens=300)
    assert short.choices[0].finish_reason in ("stop", "length")


def test_chat_logprobs(client, server):
    r = ask(client, server, temperature=0, logprobs=True, top_logprobs=3, max_tokens=8).choices[0]
    entries = r.logprobs.content
    assert len(entries) == 8
    assert b"".join(bytes(e.bytes) for e in entries).decode() == r.message.content
    for e in entries:
        assert e.logprob <= 0 and len(e.top_logprobs) == 3
        assert e.top_logprobs[0].token == e.token and e.top_logprobs[0].logprob == e.logprob, "greedy takes the top"
        assert [t.logprob for t in e.top_logprobs] == sorted((t.logprob for t in e.top_logprobs), reverse=True)
        assert sum(math.exp(t.logprob) for t in e.top_logprobs) <= 1.0001
    streamed = []
    for c in ask(client, server, temperature=0, logprobs=True, top_logprobs=3, max_tokens=8, stream=True):
        if c.choices[0].logprobs:
            streamed += c.choices[0].logprobs.content
    assert streamed == entries
    bare = ask(client, server, temperature=0, logprobs=True, max_tokens=2).choices[0].logprobs.content
    assert [e.logprob for e in bare] == [e.logprob for e in entries[:2]] and bare[0].top_logprobs == []


def test_completions(client, server):
    def complete(prompt, **more):
        return client.completions.create(model=server.model, prompt=prompt, temperature=0, **more)

    one = complete("The capital of France is", max_tokens=8)
    assert one.object == "text_completion" and one.choices[0].text and one.usage.completion_tokens == 8
    assert len(complete("a").choices[0].text) > 0 and complete("The river").usage.completion_tokens <= 16
    ids = server.json("/tokenize", {"prompt": "The capital of France is"})[1]["tokens"]
    assert complete(ids, max_tokens=8).choices[0].text == one.choices[0].text
    two = complete(["The capital of France is", "One, two, three,"], max_tokens=8)
    assert [c.index for c in two.choices] == [0, 1] and two.choices[0].text == one.choices[0].text
    both = complete([ids, ids], max_tokens=8)
    assert both.choices[0].text == both.choices[1].text == one.choices[0].text
    echoed = complete("The capital of France is", max_tokens=8, echo=True)
    assert echoed.choices[0].text == "The capital of France is" + one.choices[0].text
    streamed = "".join(c.choices[0].text for c in complete("The capital of France is", max_tokens=8, stream=True))
    assert streamed == one.choices[0].text


def test_completion_logprobs(client, server):
    r = client.completions.create(model=server.model, prompt="The capital of France is", temperature=0, max_tokens=6, logprobs=2)
    lp, text = r.choices[0].logprobs, r.choices[0].text
    assert "".join(lp.tokens) == text and len(lp.token_logprobs) == 6
    assert [text[o : o + len(t)] for o, t in zip(lp.text_offset, lp.tokens)] == lp.tokens
    for token, logprob, top in zip(lp.tokens, lp.token_logprobs, lp.top_logprobs):
        assert len(top) == 2 and top[token] == logprob == max(top.values())


def test_sampling_fields_have_their_effect(client, server):
    greedy = ask(client, server, temperature=0).choices[0].message.content
    for more in ({"top_p": 1e-6}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1.0}}):
        assert ask(client, server, temperature=2.0, seed=5, **more).choices[0].message.content == greedy, more
    first = server.json("/tokenize", {"prompt": greedy, "add_special_tokens": False})[1]["tokens"][0]
    banned = ask(client, server, temperature=0, logit_bias={str(first): -100}).choices[0].message.content
    assert banned != greedy
    forced = ask(client, server, temperature=0, logit_bias={str(first): 100}, max_tokens=3, logprobs=True).choices[0]
    assert len({e.token for e in forced.logprobs.content}) == 1
    repeated = ask(client, server, temperature=0, max_tokens=60, extra_body={"repetition_penalty": 1.8}).choices[0].message.content
    assert repeated != ask(client, server, temperature=0, max_tokens=60).choices[0].message.content
    stop_id = server.json("/tokenize", {"prompt": greedy, "add_special_tokens": False})[1]["tokens"][2]
    stopped = ask(client, server, temperature=0, logprobs=True, extra_body={"stop_token_ids": [stop_id]}).choices[0]
    assert stopped.finish_reason == "stop" and greedy.startswith(stopped.message.content)
    assert len(stopped.logprobs.content) == 2


def test_errors_are_the_clients_own(client, server):
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, server, tools=[{"type": "function", "function": {"name": "f"}}])
    assert e.value.param == "tools" and e.value.type == "invalid_request_error" and "tools" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, server, response_format={"type": "json_object"})
    assert e.value.param == "response_format"
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, server, "word " * 3000)
    assert e.value.code == "context_length_exceeded" and "2048" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, server, max_tokens=2048)
    assert e.value.param == "max_tokens" and "2048" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, server, temperature=-1)
    assert e.value.param == "temperature"
    with pytest.raises(openai.APIStatusError) as e:
        ask(client, server, "a", extra_body={"timeout": 0.001, "max_tokens": 500, "ignore_eos": True})
    assert e.value.status_code == 504 and "0.001" in e.value.message


@pytest.mark.parametrize("text", ["한국어로 길게 인사해 주세요. 😀", "Write ten emoji: 👩‍👩‍👧‍👦 🇰🇷 😀", "日本語で自己紹介してください。"])
def test_streams_hold_whole_characters(client, server, text):
    for seed in range(3):
        more = {"temperature": 1.2, "seed": seed, "max_tokens": 60}
        whole = ask(client, server, text, **more).choices[0]
        parts = [c.choices[0].delta.content or "" for c in ask(client, server, text, stream=True, **more)]
        assert "".join(parts) == whole.message.content
        # A random model may produce bytes that are no text; half a character between two events must not show.
        for part in parts[:-1]:
            part.encode()
    # Text that is certain to be split over tokens: forced, token by token.
    ids = server.json("/tokenize", {"prompt": "안녕 👩‍👩‍👧‍👦!", "add_special_tokens": False})[1]["tokens"]
    assert len(ids) > 8
    back = server.json("/detokenize", {"tokens": ids})[1]
    assert back["prompt"] == "안녕 👩‍👩‍👧‍👦!"


def test_tokenize_forms(server):
    text = "Hello, 세계!"
    _, a = server.json("/tokenize", {"prompt": text, "return_token_strs": True})
    _, b = server.json("/tokenize", {"content": text, "with_pieces": True})
    assert a["count"] == len(a["tokens"]) == len(a["token_strs"]) and a["max_model_len"] == 2048
    assert [t["id"] for t in b["tokens"]] == a["tokens"]
    _, chat = server.json("/tokenize", {"messages": [{"role": "user", "content": text}]})
    answer = server.chat(text, max_tokens=1)
    assert chat["count"] == answer["usage"]["prompt_tokens"]
    for body, field in (({}, "prompt"), ({"prompt": "a", "content": "b"}, "prompt"), ({"prompt": 1}, "prompt"),
                        ({"prompt": "a", "x": 1}, "x")):
        status, e = server.json("/tokenize", body)
        assert status == 400 and e["error"]["param"] == field
    for body in ({"tokens": [-1]}, {"tokens": [10**9]}, {"tokens": ["a"]}, {}):
        assert server.json("/detokenize", body)[0] == 400
