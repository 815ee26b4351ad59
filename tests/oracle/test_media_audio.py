"""Audio files against soundfile; resampling against torchaudio's formula; windows, transforms, filter banks and features
against SciPy and librosa, Whisper's and Kaldi's against their definitions in NumPy (torch is a heavy oracle)."""

import io
import struct

import librosa
import numpy as np
import pytest
import scipy.signal
import soundfile
from media_tool import Refused, Tool


@pytest.fixture(scope="module")
def tool(churon, tmp_path_factory):
    return Tool(churon, tmp_path_factory.mktemp("media"))


def sound(n, rate=16000, seed=1):
    """A sweep, harmonics that come and go, and noise."""
    t, rng = np.arange(n) / rate, np.random.default_rng(seed)
    x = 0.4 * np.sin(2 * np.pi * (200 + 900 * t) * t) + 0.2 * np.sin(2 * np.pi * 3000 * t) * (np.sin(2 * np.pi * 3 * t) > 0)
    return (x + 0.02 * rng.normal(size=n)).astype(np.float32)


def written(x, rate, container, subtype):
    out = io.BytesIO()
    soundfile.write(out, x.T, rate, format=container, subtype=subtype)
    return out.getvalue()


FILES = [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAV", "PCM_U8"), ("WAV", "ULAW"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24"),
         ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("AU", "PCM_16"), ("W64", "PCM_16"), ("RF64", "PCM_16")]


@pytest.mark.parametrize("container,subtype", FILES)
def test_files_equal_soundfile(tool, container, subtype):
    for channels in (1, 2, 8):
        if container == "MP3" and channels > 2:
            continue
        x = np.stack([sound(5000, seed=c) for c in range(channels)])
        data = written(x, 16000, container, subtype)
        want, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
        info, got = tool.file("audio", data)
        assert (info["rate"], info["channels"], info["samples"]) == (rate, channels, len(want))
        assert info["container"] == container
        # The two libsndfiles may hold other releases of the lossy decoders.
        np.testing.assert_allclose(got, want.T, rtol=0, atol=0 if subtype not in ("VORBIS", "MPEG_LAYER_III") else 1e-5)
        mono = tool.file("audio", data, mono=1)[1]
        np.testing.assert_array_equal(mono, got.mean(0, keepdims=True, dtype=np.float32))
        np.testing.assert_array_equal(tool.array("mix", got), mono)


def test_no_samples(tool):
    info, got = tool.file("audio", written(np.zeros((2, 0), np.float32), 8000, "WAV", "PCM_16"))
    assert info["samples"] == 0 and got.shape == (2, 0)


def test_what_is_refused(tool):
    x = np.stack([sound(20000)])
    for container, subtype in FILES[:8]:
        data = written(x, 16000, container, subtype)
        with pytest.raises(Refused, match="audio: "):
            tool.file("audio", data[: len(data) // 40])
        if container in ("WAV", "FLAC"):
            with pytest.raises(Refused, match="corrupt"):
                tool.file("audio", data[: len(data) // 2])
        with pytest.raises(Refused, match="samples: expected at most 1000 over all channels"):
            tool.file("audio", data, max_samples=1000)
    with pytest.raises(Refused, match="unsupported: audio: format"):
        tool.file("audio", b"no sound at all, not even a header" * 10)
    wav = bytearray(written(x, 16000, "WAV", "PCM_16"))
    wav[22:24] = struct.pack("<H", 1000)
    with pytest.raises(Refused, match="audio: "):
        tool.file("audio", bytes(wav))
    wav = bytearray(written(x, 16000, "WAV", "PCM_16"))
    wav[40:44] = struct.pack("<I", 0x10000000)
    with pytest.raises(Refused, match="truncated: data: expected 268435456 bytes"):
        tool.file("audio", bytes(wav))


def torchaudio_resample(x, old, new, zeros, rolloff, beta=None):
    """torchaudio.functional.resample (2.x), in f64."""
    g = np.gcd(old, new)
    old, new = old // g, new // g
    base = min(old, new) * rolloff
    width = int(np.ceil(zeros * old / base))
    idx = np.arange(-width, width + old)[None, :] / old
    t = np.clip((np.arange(0, -new, -1)[:, None] / new + idx) * base, -zeros, zeros)
    window = np.cos(t * np.pi / zeros / 2) ** 2 if beta is None else np.i0(beta * np.sqrt(1 - (t / zeros) ** 2)) / np.i0(beta)
    kernels = np.sinc(t) * window * base / old
    padded = np.pad(x.astype(np.float64), (width, width + old))
    blocks = np.lib.stride_tricks.sliding_window_view(padded, 2 * width + old)[::old]
    return (blocks @ kernels.T).ravel()[: -(-new * len(x) // old)]


@pytest.mark.parametrize("preset,quality", [(0, (6, 0.99)), (1, (16, 0.85, 8.555504641634386)), (2, (64, 0.9475937167399596, 14.769656459379492))])
@pytest.mark.parametrize("old,new", [(44100, 16000), (48000, 16000), (16000, 48000), (8000, 16000), (16000, 22050), (22050, 16000), (11025, 8000), (3, 7)])
def test_resampling_by_torchaudios_formula(tool, preset, quality, old, new):
    x = np.stack([sound(3000), sound(3000, seed=2)])
    got = tool.array("resample", x, **{"from": old, "to": new, "preset": preset})
    assert got.shape == (2, -(-3000 * (new // np.gcd(old, new)) // (old // np.gcd(old, new))))
    for c in range(2):
        np.testing.assert_allclose(got[c], torchaudio_resample(x[c], old, new, *quality), rtol=0, atol=1e-5)


def test_resampling_of_odd_lengths_and_rates(tool):
    for n in (0, 1, 2, 159, 161):
        x = sound(n)[None]
        got = tool.array("resample", x, **{"from": 44100, "to": 16000, "preset": 0})
        assert got.shape == (1, -(-160 * n // 441))
        if n:
            np.testing.assert_allclose(got[0], torchaudio_resample(x[0], 44100, 16000, 6, 0.99), rtol=0, atol=1e-5)
    same = sound(100)[None]
    np.testing.assert_array_equal(tool.array("resample", same, **{"from": 8000, "to": 8000, "preset": 0}), same)
    with pytest.raises(Refused, match="limit.*rates: expected weights"):
        tool.array("resample", same, **{"from": 999983, "to": 1000003, "preset": 2})


def test_windows(tool, tmp_path):
    for kind, name in ((0, "boxcar"), (1, "hann"), (2, "hamming"), (3, "blackman"), (5, ("kaiser", 12.0))):
        for n in (1, 2, 25, 400):
            for symmetric in (0, 1):
                assert tool.run("window", tmp_path / "w.npy", f"kind={kind}", f"n={n}", f"symmetric={symmetric}", "parameter=12").returncode == 0
                want = scipy.signal.get_window(name, n, fftbins=not symmetric)
                np.testing.assert_allclose(np.load(tmp_path / "w.npy"), want, rtol=0, atol=1e-6)
    assert tool.run("window", tmp_path / "w.npy", "kind=4", "n=400", "symmetric=1").returncode == 0
    np.testing.assert_allclose(np.load(tmp_path / "w.npy"), np.hanning(400) ** 0.85, rtol=0, atol=1e-6)


@pytest.mark.parametrize("fft,hop,window", [(400, 160, 400), (512, 128, 512), (512, 160, 400), (2048, 512, 2048), (30, 7, 20), (254, 40, 254)])
@pytest.mark.parametrize("center,pad", [(1, 0), (1, 1), (1, 2), (0, 0)])
def test_stft_is_librosas(tool, fft, hop, window, center, pad):
    x = sound(6001)
    mode = ("reflect", "constant", "edge")[pad]
    want = librosa.stft(x.astype(np.float64), n_fft=fft, hop_length=hop, win_length=window, center=bool(center), pad_mode=mode)
    got = tool.array("stft", x, fft=fft, hop=hop, window=window, center=center, pad=pad)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())
    power = tool.array("stft", np.stack([x, x]), fft=fft, hop=hop, window=window, center=center, pad=pad, what=2)
    np.testing.assert_allclose(power[1], np.abs(want) ** 2, rtol=0, atol=1e-5 * np.abs(want).max() ** 2)


def test_stft_that_cannot_be(tool):
    with pytest.raises(Refused, match="at least one frame|more than 200 to reflect"):
        tool.array("stft", sound(100), fft=400, hop=160, center=1)
    with pytest.raises(Refused, match="hop: expected 1"):
        tool.array("stft", sound(1000), fft=400, hop=0)
    with pytest.raises(Refused, match="points: expected an even number"):
        tool.array("stft", sound(1000), fft=401, hop=10)


def test_filter_banks_are_librosas(tool, tmp_path):
    for rate, fft, mels, low, high in ((16000, 400, 80, 0, 8000), (22050, 2048, 128, 0, 11025), (16000, 512, 40, 20, 7600), (48000, 1024, 64, 50, 14000)):
        for htk in (False, True):
            for norm in (None, "slaney"):
                words = [f"fft={fft}", f"rate={rate}", f"mels={mels}", f"low={low}", f"high={high}", f"scale={int(htk)}", f"area={int(norm is not None)}"]
                assert tool.run("mel", tmp_path / "m.npy", *words).returncode == 0
                want = librosa.filters.mel(sr=rate, n_fft=fft, n_mels=mels, fmin=low, fmax=high, htk=htk, norm=norm)
                np.testing.assert_allclose(np.load(tmp_path / "m.npy"), want, rtol=0, atol=1e-6)


@pytest.fixture(params=["ref", "avx2", "avx512"])
def cpu(request, monkeypatch, tool):
    monkeypatch.setenv("CHURON_CPU", request.param)
    if tool.run("stft", "x", "y").stderr.startswith("unsupported"):
        pytest.skip("skip: this processor lacks it")
    return request.param


@pytest.mark.parametrize("mels", [80, 128])
def test_log_mel_as_whisper_has_it(tool, cpu, mels):
    """The published definition: hann 400, hop 160, the last frame dropped, slaney filters, log10, 8 below the maximum."""
    x = sound(16000 * 3)
    spectrum = librosa.stft(x.astype(np.float64), n_fft=400, hop_length=160, pad_mode="reflect")[:, :-1]
    mel = librosa.filters.mel(sr=16000, n_fft=400, n_mels=mels).astype(np.float64) @ np.abs(spectrum) ** 2
    log = np.log10(np.maximum(mel, 1e-10))
    want = (np.maximum(log, log.max() - 8) + 4) / 4
    np.testing.assert_allclose(tool.array("features", x, preset="whisper", mels=mels), want, rtol=0, atol=1e-4)


def kaldi_fbank(x, rate, mels, snip=True, gain=1.0):
    """torchaudio.compliance.kaldi.fbank(dither=0), in f64."""
    x = x.astype(np.float64) * gain
    window, shift = rate // 40, rate // 100
    fft = 1 << (window - 1).bit_length()
    if snip:
        frames = np.lib.stride_tricks.sliding_window_view(x, window)[::shift]
    else:
        m, pad = (len(x) + shift // 2) // shift, window // 2 - shift // 2
        y = np.concatenate([x[::-1][-pad:], x, x[::-1]])
        frames = np.lib.stride_tricks.sliding_window_view(y, window)[::shift][:m]
    frames = frames - frames.mean(1, keepdims=True)
    frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], 1)
    power = np.abs(np.fft.rfft(frames * np.hanning(window) ** 0.85, fft)) ** 2

    def mel(f):
        return 1127 * np.log(1 + f / 700)

    edges = mel(20) + (mel(rate / 2) - mel(20)) / (mels + 1) * np.arange(mels + 2)
    at = mel(rate / fft * np.arange(fft // 2))[None]
    up, down = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None], (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
    return np.log(np.maximum(power[:, :-1] @ np.maximum(0, np.minimum(up, down)).T, np.finfo(np.float32).eps))


@pytest.mark.parametrize("rate,mels", [(16000, 80), (16000, 23), (8000, 40)])
def test_fbank_as_kaldi_has_it(tool, cpu, rate, mels):
    x = sound(9999, rate) + np.float32(0.3)
    for snip in (1, 0):
        for gain in (1, 32768):
            got = tool.array("features", x, preset="fbank", rate=rate, mels=mels, snip=snip, gain=gain)
            want = kaldi_fbank(x, rate, mels, bool(snip), gain)
            assert got.shape == want.shape
            # Energies near nothing are differences of large numbers in f32.
            strong = want > want.max() - 14
            np.testing.assert_allclose(got[strong], want[strong], rtol=0, atol=2e-4)
            assert np.abs(got - want).max() < 2e-2


def test_mel_spectrogram_and_mfcc_are_librosas(tool, cpu):
    for rate, n in ((22050, 22050 * 2), (16000, 5000)):
        x = sound(n, rate)
        mel = librosa.feature.melspectrogram(y=x, sr=rate, n_fft=1024, hop_length=256, n_mels=64)
        got = tool.array("features", x, preset="librosa", rate=rate, fft=1024, hop=256, mels=64)
        np.testing.assert_allclose(got, librosa.power_to_db(mel), rtol=0, atol=1e-3)
        got = tool.array("features", x, preset="librosa", rate=rate, fft=1024, hop=256, mels=64, log=0)
        np.testing.assert_allclose(got, mel, rtol=1e-4, atol=1e-5 * mel.max())
        for cepstra, lifter in ((20, 0), (13, 22)):
            want = librosa.feature.mfcc(y=x.astype(np.float64), sr=rate, n_mfcc=cepstra, lifter=lifter)
            got = tool.array("features", x, preset="mfcc", rate=rate, mels=128, cepstra=cepstra, lifter=lifter)
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())


def test_features_of_too_little(tool):
    with pytest.raises(Refused, match="features: samples: expected"):
        tool.array("features", sound(0), preset="whisper", mels=80)
    with pytest.raises(Refused, match="features: samples: expected enough for a frame of 400, got 399"):
        tool.array("features", sound(399), preset="fbank", rate=16000, mels=80)
    with pytest.raises(Refused, match="hop: expected 1"):
        tool.array("features", sound(399), preset="fbank", rate=20, mels=80)
