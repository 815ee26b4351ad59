/* bench_load_print.c: what `churon bench --load` found, as one JSON object and as text; see bench_load.h. */
#include "cli/bench_load.h"

#include <math.h>

/* ---- figures of a search and of stalls ---------------------------------------------------------------- */

typedef struct stall_sum {
    load_quantiles alone, beside, gap, before_p50, before_max;
    double prefill_ratio; /* of the medians */
} stall_sum;

static stall_sum sum_stalls(const load_score *s) {
    load_samples v[5] = {{0}};
    for (size_t i = 0; i < s->n_stalls; i++) {
        const load_stall *r = &s->stalls[i];
        const double values[] = {r->alone, r->beside, r->gap_longest, r->gap_before_p50, r->gap_before_max};
        for (size_t k = 0; k < 5; k++) load_samples_add(&v[k], values[k]);
    }
    stall_sum out = {.alone = load_samples_quantiles(&v[0]),
                     .beside = load_samples_quantiles(&v[1]),
                     .gap = load_samples_quantiles(&v[2]),
                     .before_p50 = load_samples_quantiles(&v[3]),
                     .before_max = load_samples_quantiles(&v[4])};
    out.prefill_ratio = out.beside.p50 / out.alone.p50;
    for (size_t k = 0; k < 5; k++) load_samples_free(&v[k]);
    return out;
}

static double rounded(double v) {
    return round(v * 1e4) / 1e4;
}

static void stall_json(const load_score *s, json_out *j) {
    const stall_sum sum = sum_stalls(s);
    json_out_object(j, "stall");
    json_out_uint(j, "prompt_tokens", s->n_stalls ? s->stalls[0].long_tokens : 0);
    load_quantiles_json(&sum.alone, "prefill_alone_ms", j);
    load_quantiles_json(&sum.beside, "prefill_beside_ms", j);
    json_out_double(j, "prefill_ratio", rounded(sum.prefill_ratio));
    load_quantiles_json(&sum.before_p50, "gap_before_p50_ms", j);
    load_quantiles_json(&sum.before_max, "gap_before_max_ms", j);
    load_quantiles_json(&sum.gap, "gap_longest_ms", j);
    json_out_end_object(j);
}

static void knee_json(const load_knee *k, json_out *j) {
    json_out_object(j, "knee");
    json_out_double(j, "rate", rounded(k->holds));
    json_out_double(j, "share", LOAD_KNEE_SHARE);
    json_out_array(j, "steps");
    for (size_t i = 0; i < k->n; i++) {
        const load_knee_step *s = &k->steps[i];
        json_out_object(j, NULL);
        json_out_double(j, "rate", rounded(s->rate));
        json_out_double(j, "good_share", rounded(s->share));
        json_out_double(j, "goodput_per_s", rounded(s->rate * s->share));
        json_out_double(j, "ttft_p99_ms", rounded(s->ttft_p99 * 1e3));
        json_out_double(j, "tpot_p99_ms", rounded(s->tpot_p99 * 1e3));
        json_out_bool(j, "stopped_early", s->gave_up);
        json_out_end_object(j);
    }
    json_out_end_array(j);
    json_out_end_object(j);
}

/* ---- the first target against the second -------------------------------------------------------------- */

typedef struct ratio {
    const char *name; /* NULL: the end */
    double ours, peers;
    bool more_is_better;
} ratio;

enum { RATIOS_MAX = 12 };

static void compare(const load_contest *c, const load_request_options *o, ratio out[RATIOS_MAX]) {
    const load_score *a = &c->scores[0], *b = &c->scores[1];
    size_t n = 0;
    if (o->mode == LOAD_STALL) {
        const stall_sum x = sum_stalls(a), y = sum_stalls(b);
        out[n++] = (ratio){"gap_longest", x.gap.p50, y.gap.p50, false};
        out[n++] = (ratio){"gap_before_p50", x.before_p50.p50, y.before_p50.p50, false};
        out[n++] = (ratio){"prefill_alone", x.alone.p50, y.alone.p50, false};
        out[n++] = (ratio){"prefill_beside", x.beside.p50, y.beside.p50, false};
    } else if (o->find_knee) {
        out[n++] = (ratio){"knee_rate", a->knee.holds, b->knee.holds, true};
    } else {
        const load_figures *x = &a->figures, *y = &b->figures;
        out[n++] =
            (ratio){"output_tokens_per_s", load_figures_tokens_per_s(x), load_figures_tokens_per_s(y), true};
        out[n++] =
            (ratio){"requests_per_s", load_figures_requests_per_s(x), load_figures_requests_per_s(y), true};
        if (o->has_slo)
            out[n++] = (ratio){"goodput_per_s", load_figures_goodput(x), load_figures_goodput(y), true};
        out[n++] = (ratio){"ttft_p50", x->ttft.p50, y->ttft.p50, false};
        out[n++] = (ratio){"ttft_p99", x->ttft.p99, y->ttft.p99, false};
        out[n++] = (ratio){"tpot_p50", x->tpot.p50, y->tpot.p50, false};
        out[n++] = (ratio){"itl_p50", x->itl.p50, y->itl.p50, false};
        out[n++] = (ratio){"itl_p99", x->itl.p99, y->itl.p99, false};
        out[n++] = (ratio){"e2e_p50", x->e2e.p50, y->e2e.p50, false};
    }
    out[n] = (ratio){0};
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

static const char *mode_name(load_mode m) {
    switch (m) {
    case LOAD_CLOSED: return "closed";
    case LOAD_OPEN: return "open";
    case LOAD_TRACE: return "trace";
    case LOAD_STALL: return "stall";
    }
    return "";
}

static void range_json(json_out *j, const char *key, load_range r) {
    json_out_array(j, key);
    json_out_uint(j, NULL, r.lo);
    json_out_uint(j, NULL, r.hi);
    json_out_end_array(j);
}

static void limit_json(json_out *j, const char *key, double seconds) {
    if (seconds > 0) json_out_double(j, key, seconds * 1e3);
}

static void lengths_json(json_out *j, const load_request_options *o) {
    if (o->trace) {
        json_out_cstr(j, "trace", o->trace);
        json_out_double(j, "time_scale", o->time_scale);
        json_out_double(j, "length_scale", o->length_scale);
        return;
    }
    if (o->prompts) {
        json_out_cstr(j, "prompts", o->prompts);
    } else {
        range_json(j, "prompt_tokens", o->prompt_tokens);
    }
    range_json(j, "output_tokens", o->output_tokens);
}

static void conditions_json(json_out *j, const load_request_options *o) {
    json_out_object(j, "conditions");
    json_out_cstr(j, "mode", mode_name(o->mode));
    if (o->mode == LOAD_CLOSED) json_out_uint(j, "concurrency", o->concurrency);
    if (o->rate > 0) json_out_double(j, "rate", o->rate);
    if (o->requests > 0) json_out_uint(j, o->duration > 0 ? "requests_max" : "requests", o->requests);
    if (o->duration > 0) json_out_double(j, "duration_s", o->duration);
    json_out_uint(j, "rounds", o->find_knee ? 1 : o->rounds);
    lengths_json(j, o);
    json_out_uint(j, "shared_prefix", o->shared_prefix);
    json_out_uint(j, "seed", o->seed);
    json_out_cstr(j, "api", o->completions ? "completions" : "chat");
    json_out_bool(j, "ignore_eos", !o->keep_eos);
    json_out_double(j, "temperature", o->temperature);
    json_out_cstr(j, "body", o->body);
    json_out_double(j, "timeout_s", o->timeout);
    if (o->has_slo) {
        json_out_object(j, "slo");
        limit_json(j, "ttft_ms", o->slo.ttft);
        limit_json(j, "tpot_ms", o->slo.tpot);
        limit_json(j, "itl_ms", o->slo.itl);
        limit_json(j, "e2e_ms", o->slo.e2e);
        json_out_end_object(j);
    }
    json_out_end_object(j);
}

static void target_json(json_out *j, const load_score *s, const load_request_options *o) {
    json_out_object(j, NULL);
    json_out_cstr(j, "url", s->target.base);
    json_out_cstr(j, "model", s->target.model);
    json_out_cstr(j, "server", s->target.server[0] ? s->target.server : NULL);
    if (s->target.context) json_out_uint(j, "context", s->target.context);
    if (o->mode == LOAD_STALL) {
        stall_json(s, j);
    } else {
        if (o->find_knee) knee_json(&s->knee, j);
        load_figures_json(&s->figures, o->has_slo ? &o->slo : NULL, j);
    }
    json_out_end_object(j);
}

void load_contest_json(const load_contest *c, const load_request_options *o, str *to) {
    json_out j = json_out_begin(to);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "version", churon_version());
    json_out_cstr(&j, "scenario", o->scenario);
    conditions_json(&j, o);
    json_out_array(&j, "targets");
    for (size_t i = 0; i < c->n; i++) target_json(&j, &c->scores[i], o);
    json_out_end_array(&j);
    if (c->n == 2) {
        ratio ratios[RATIOS_MAX];
        compare(c, o, ratios);
        json_out_object(&j, "ratios");
        for (const ratio *r = ratios; r->name; r++) json_out_double(&j, r->name, rounded(r->ours / r->peers));
        json_out_end_object(&j);
    } else {
        json_out_null(&j, "ratios");
    }
    json_out_end_object(&j);
}

/* ---- text --------------------------------------------------------------------------------------------- */

static void add_range(str *to, load_range r) {
    str_fmt(to, r.lo == r.hi ? "%u" : "%u to %u", r.lo, r.hi);
}

static void add_conditions(str *to, const load_request_options *o) {
    if (o->mode == LOAD_STALL) {
        str_fmt(to, "a prompt of %u tokens alone, then beside a chat that decodes", o->prompt_tokens.hi);
    } else if (o->find_knee) {
        str_fmt(to, "%g s at each rate", o->duration);
        if (o->trace) str_fmt(to, ", %s, lengths × %g", o->trace, o->length_scale);
    } else if (o->duration > 0) {
        str_fmt(to, "for %g s %s", o->duration, o->trace ? o->trace : "");
        if (o->mode == LOAD_CLOSED) str_fmt(to, "%llu at once", (unsigned long long)o->concurrency);
        if (o->mode == LOAD_OPEN) str_fmt(to, "%g requests a second", o->rate);
    } else if (o->mode == LOAD_CLOSED) {
        str_fmt(to, "%llu requests, %llu at once", (unsigned long long)o->requests,
                (unsigned long long)o->concurrency);
    } else if (o->trace) {
        str_fmt(to, "%s, times × %g, lengths × %g", o->trace, o->time_scale, o->length_scale);
    } else {
        str_fmt(to, "%llu requests, %g a second", (unsigned long long)o->requests, o->rate);
    }
    if (o->mode != LOAD_STALL && !o->trace) {
        str_cat(to, ", tokens in ");
        if (o->shared_prefix) str_fmt(to, "%llu shared + ", (unsigned long long)o->shared_prefix);
        if (o->prompts) {
            str_cat(to, o->prompts);
        } else {
            add_range(to, o->prompt_tokens);
        }
        str_cat(to, ", out ");
        add_range(to, o->output_tokens);
    }
    if (!o->find_knee && o->rounds > 1) str_fmt(to, "; %llu rounds", (unsigned long long)o->rounds);
    str_fmt(to, "; seed %llu\n", (unsigned long long)o->seed);
}

static void add_stall(str *to, const load_score *s) {
    const stall_sum sum = sum_stalls(s);
    str_fmt(to,
            "  longest gap of the chat   %9.1f ms (most of all rounds %.1f); before: %.1f, at most %.1f\n",
            sum.gap.p50 * 1e3, sum.gap.max * 1e3, sum.before_p50.p50 * 1e3, sum.before_max.max * 1e3);
    str_fmt(to, "  first token of the prompt %9.1f ms; alone: %.1f; %+.1f %%\n", sum.beside.p50 * 1e3,
            sum.alone.p50 * 1e3, (sum.prefill_ratio - 1) * 100);
}

static void add_knee(str *to, const load_knee *k) {
    str_fmt(to, "  %12s %9s %14s %14s\n", "requests/s", "good", "TTFT p99, ms", "TPOT p99, ms");
    for (size_t i = 0; i < k->n; i++) {
        const load_knee_step *s = &k->steps[i];
        str_fmt(to, "  %12.3f %8.1f%% %14.1f %14.1f%s\n", s->rate, s->share * 100, s->ttft_p99 * 1e3,
                s->tpot_p99 * 1e3, s->gave_up ? "  stopped early" : "");
    }
    if (k->holds > 0) {
        str_fmt(to, "  the knee is at %.3f requests/s\n", k->holds);
    } else {
        str_cat(to, "  no rate held\n");
    }
}

static void add_ratios(str *to, const load_contest *c, const load_request_options *o) {
    ratio ratios[RATIOS_MAX];
    compare(c, o, ratios);
    str_fmt(to, "%-22s %12s\n", "first : second", "ratio");
    for (const ratio *r = ratios; r->name; r++) {
        str_fmt(to, "%-22s %11.3f×  (%s is better)\n", r->name, r->ours / r->peers,
                r->more_is_better ? "more" : "less");
    }
}

void load_contest_table(const load_contest *c, const load_request_options *o, str *to) {
    add_conditions(to, o);
    for (size_t i = 0; i < c->n; i++) {
        const load_score *s = &c->scores[i];
        str_fmt(to, "%s (%s%s%s)\n", s->target.base, s->target.model, s->target.server[0] ? ", " : "",
                s->target.server);
        if (o->mode == LOAD_STALL) {
            add_stall(to, s);
        } else if (o->find_knee) {
            add_knee(to, &s->knee);
        } else {
            load_figures_table(&s->figures, o->has_slo ? &o->slo : NULL, to);
        }
    }
    if (c->n == 2) add_ratios(to, c, o);
}
