/* answer_bundle.h: bundles without a model whose steps take a record's numbers apart. Each has the fields x
 * (float32 [rows, columns]), n (int64 [rows]) and t (text). */
#ifndef TESTS_UNIT_ANSWER_BUNDLE_H
#define TESTS_UNIT_ANSWER_BUNDLE_H

#define ANSWER_HEAD                                                                                          \
    "churon: 1\nname: answer\nversion: 1\ninputs:\n"                                                         \
    "  x: {type: tensor, dtype: float32, shape: [-1, -1], allow_nan: true}\n"                                \
    "  n: {type: tensor, dtype: int64, shape: [-1]}\n"                                                       \
    "  t: {type: text}\n"                                                                                    \
    "steps:\n"
static const char *const ANSWER_BUNDLES[] = {
    ANSWER_HEAD "- constant: {value: [50, 70], type: int64, into: size}\n"
                "- db_text_boxes: {field: x, of: size, box_threshold: 0.1, scores: s, into: boxes}\n"
                "- sort_boxes: {field: boxes, with: {s: ss}, into: sorted}\n"
                "- scale_boxes: {field: sorted, from: size, to: size, into: scaled}\n"
                "outputs: {scaled: {}, ss: {}}\n",
    ANSWER_HEAD "- constant: {value: [50, 70], type: int64, into: size}\n"
                "- db_text_boxes: {field: x, of: size, box_threshold: 0, score_mode: slow, dilate: false, "
                "unclip_ratio: 3, into: boxes}\n"
                "outputs: {boxes: {}}\n",
    ANSWER_HEAD "- decode_boxes: {kind: yolov8, field: x}\n"
                "- nms: {boxes: boxes, scores: scores, classes: classes, iou: 0.3, max: 40, into: kept, "
                "with: {boxes: b}}\n"
                "- threshold: {field: scores, at: 0.5, into: sure}\n"
                "- filter: {from: scores, by: sure, equals: true, into: best}\n"
                "- record: {each: true, members: {box: boxes, score: scores}, into: all}\n"
                "outputs: {kept: {}, b: {}, best: {}, all: {}}\n",
    ANSWER_HEAD "- decode_boxes: {kind: yolov5, field: x, min_score: 0.2}\n"
                "- nms: {boxes: boxes, scores: scores, format: cxcywh, iou: 0.5, into: kept}\n"
                "outputs: {kept: {}}\n",
    ANSWER_HEAD "- ctc: {field: x, labels: [a, b, c], score: s, into: y}\noutputs: {y: {}, s: {}}\n",
    ANSWER_HEAD "- ctc: {field: x, labels: [a, b, c], blank: 2, input: logits, method: beam, width: 5, "
                "score: s, into: y}\n"
                "outputs: {y: {}, s: {}}\n",
    ANSWER_HEAD "- argmax: {field: x, axis: 1, into: best, value: v}\n"
                "- softmax: {field: v, into: p}\n"
                "- timestamps: {field: p, max_speech_s: 0.2, min_speech_ms: 40, into: speech}\n"
                "- timestamps: {field: v, cut_at_longest: false, max_speech_s: 0.3, min_silence_ms: 600, "
                "min_silence_at_max_ms: 30, "
                "seconds: true, into: other}\n"
                "outputs: {speech: {}, other: {}, best: {}}\n",
    ANSWER_HEAD
    "- argmax: {field: x, axis: 1, into: best, value: v}\n"
    "- windows: {field: n, size: 2, into: o}\n"
    "- span: {start: v, end: v, offsets: o, text: t, cls: false, into: a}\n"
    "- span: {start: v, end: v, offsets: o, text: t, unit: bytes, empty: true, max_tokens: 3, into: b}\n"
    "outputs: {a: {}, b: {}, best: {}}\n",
    ANSWER_HEAD "- windows: {field: n, size: 2, into: o}\n"
                "- token_classes: {field: x, labels: [O, B-A, E-A, S-B], offsets: o, text: t, aggregation: "
                "average, into: a}\n"
                "- token_classes: {field: x, labels: [O, B-A, I-A, B-B], offsets: o, text: t, aggregation: "
                "max, unit: bytes, "
                "input: probabilities, into: b}\n"
                "outputs: {a: {}, b: {}}\n",
    ANSWER_HEAD "- windows: {field: x, size: 3, hop: 2, context: 1, lead: 1, into: w}\n"
                "- stitch: {field: w, into: y}\n"
                "- for_each: {from: x, as: row, index: i, steps: [{l2_normalize: {field: row, into: unit}}, "
                "{pool: {field: x, "
                "kind: max, into: m}}], collect: {unit: units, i: places}, stack: {m: all}}\n"
                "outputs: {y: {}, units: {}, places: {}, all: {}}\n",
    ANSWER_HEAD
    "- scan: {from: x, as: row, carry: {s: {next: row, dtype: float32, shape: [4]}}, steps: [], collect: {s: "
    "before}, last: {s: end}}\n"
    "- overlap_add: {field: x, hop: 2, weights: hann, into: sum}\n"
    "- round: {field: end, digits: 2, into: r}\n"
    "- label: {from: end, names: [a, b, c, d], score: top}\n"
    "- top_k: {field: scores, k: 2, into: two}\n"
    "- threshold: {label: b, at: 0.5}\n"
    "- abstain: {below: 0.3, margin: 0.1, value: none}\n"
    "- calibrate: {field: end, a: 1, b: 0.5, normalize: true, into: c}\n"
    "- sigmoid: {field: c, into: d}\n"
    "outputs: {before: {}, sum: {}, r: {}, label: {}, abstained: {}, two: {}, top: {}, d: {}}\n",
};
enum { N_ANSWER_BUNDLES = sizeof ANSWER_BUNDLES / sizeof *ANSWER_BUNDLES };

#endif
