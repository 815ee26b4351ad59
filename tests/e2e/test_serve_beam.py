"""Beam search through the API: what a client finds that searches by itself, token by token, is what the server finds."""

import concurrent.futures

import openai
import pytest

from serve_helper import Server

PROMPT = "Once upon a time there was"


@pytest.fixture(scope="module")
def server(churon, smollm2):
    with Server(churon, smollm2, "--ctx", "1024", "--max-running", "8") as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as c:
        yield c


def search(client, server, prompt=PROMPT, **beam):
    own = {k: beam.pop(k) for k in ("n", "best_of", "max_tokens", "echo", "stream", "temperature") if k in beam}
    return client.completions.create(model=server.model, prompt=prompt, extra_body={"use_beam_search": True, **beam}, **own)


def by_hand(client, server, ids, width, length):
    """The texts and sums of a search without stop tokens, from the 20 likeliest next tokens of every beam."""
    beams = [(0.0, [], "")]
    for _ in range(length):
        offers = []
        for total, own, text in beams:
            r = client.completions.create(model=server.model, prompt=ids + own, max_tokens=1, temperature=0, logprobs=20,
                                          extra_body={"ignore_eos": True})
            for token, logprob in r.choices[0].logprobs.top_logprobs[0].items():
                offers.append((total + logprob, own, token, text))
        offers.sort(key=lambda o: -o[0])
        beams = []
        for total, own, token, text in offers[:width]:
            answer = server.json("/tokenize", {"prompt": token, "add_special_tokens": False})[1]
            assert len(answer["tokens"]) == 1, token
            beams.append((total, own + answer["tokens"], text + token))
    return [(text, total) for total, _, text in beams]


@pytest.mark.parametrize("width, penalty", [(2, 1.0), (4, 0.0), (5, 2.0)])
def test_like_a_search_by_hand(client, server, width, penalty):
    ids = server.json("/tokenize", {"prompt": PROMPT})[1]["tokens"]
    expected = by_hand(client, server, ids, width, 4)
    found = search(client, server, n=width, max_tokens=4, ignore_eos=True, length_penalty=penalty)
    assert [c.text for c in found.choices] == [text for text, _ in expected]
    for c, (_, total) in zip(found.choices, expected):
        assert c.score == pytest.approx(total / 4**penalty, abs=2e-3) and c.finish_reason == "length"
    assert found.usage.prompt_tokens == len(ids) and found.usage.completion_tokens == 4 * width
    assert [c.index for c in found.choices] == list(range(width))


def test_width_and_number_of_results(client, server):
    five = search(client, server, n=5, max_tokens=10)
    assert sorted((c.score for c in five.choices), reverse=True) == [c.score for c in five.choices]
    assert len({c.text for c in five.choices}) == 5
    for how in ({"best_of": 5}, {"beam_width": 5}):
        two = search(client, server, n=2, max_tokens=10, **how)
        assert [(c.text, c.score) for c in two.choices] == [(c.text, c.score) for c in five.choices[:2]], how
    other = search(client, server, n=1, beam_width=2, max_tokens=10)
    assert len(other.choices) == 1 and other.choices[0].logprobs is None


def test_several_prompts_and_echo(client, server):
    prompts = ["The river", "My favourite"]
    both = search(client, server, prompts, n=2, max_tokens=6, echo=True)
    assert [c.index for c in both.choices] == [0, 1, 2, 3]
    for i, prompt in enumerate(prompts):
        alone = search(client, server, prompt, n=2, max_tokens=6)
        assert [c.text for c in both.choices[2 * i:2 * i + 2]] == [prompt + c.text for c in alone.choices]


def test_chat_ends_where_its_texts_do(client, server):
    def ask(**more):
        return client.chat.completions.create(model=server.model, messages=[{"role": "user", "content": "What is 2+2?"}], max_tokens=80, n=2,
                                              extra_body={"use_beam_search": True, "beam_width": 3, **more})

    first = ask(early_stopping=True)
    assert [c.finish_reason for c in first.choices] == ["stop", "stop"]
    assert all(c.message.content and "<|im_end|>" not in c.message.content for c in first.choices)
    short, long = ask(length_penalty=-1).choices[0], ask(length_penalty=3, early_stopping="never").choices[0]
    assert len(short.message.content) <= len(long.message.content) and short.score != long.score


def test_the_same_whatever_else_runs(client, server):
    alone = [c.model_dump() for c in search(client, server, n=3, max_tokens=20).choices]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        noise = [pool.submit(client.completions.create, model=server.model, prompt=f"Story {i}:", max_tokens=30, temperature=1.0, seed=i) for i in range(5)]
        again = [pool.submit(search, client, server, n=3, max_tokens=20) for _ in range(3)]
        for found in again:
            assert [c.model_dump() for c in found.result().choices] == alone
        assert all(n.result().choices for n in noise)


@pytest.mark.parametrize("more, param", [({"stream": True, "n": 2}, "stream"), ({"n": 9}, "beam_width"), ({"n": 1}, "beam_width"),
                                         ({"n": 2, "stop_token_ids": list(range(64)), "beam_width": 8, "ignore_eos": True, "max_tokens": 4}, None),
                                         ({"n": 2, "temperature": 0.5}, "temperature"), ({"n": 2, "max_tokens": 5000}, "max_tokens")])
def test_what_cannot_be(client, server, more, param):
    if param is None:
        assert len(search(client, server, **more).choices) == 2
        return
    with pytest.raises(openai.BadRequestError) as e:
        search(client, server, **more)
    assert e.value.param == param
