/* ops.h: the tables of operators, one a file. op_find looks through them; generated lists (documentation,
 * `inspect
 * --passes`, the random-graph generator) read them too. */
#ifndef GRAPH_OPS_OPS_H
#define GRAPH_OPS_OPS_H

#include "graph/op.h"

#define OP_TABLES(X)                                                                                         \
    X(constant)       /* Constant, ConstantOfShape, Identity, Shape, Size */                                 \
    X(control)        /* If, Loop, Scan */                                                                   \
    X(arithmetic)     /* Add … Pow, Mod, Max, Min, Sum, Mean, comparisons, logic, bits, PRelu, Where */    \
    X(arrange)        /* Transpose, Concat, Split, Expand, Tile, DepthToSpace, SpaceToDepth */               \
    X(attention)      /* Attention, FlexAttention */                                                         \
    X(attention_gqa)  /* GroupQueryAttention */                                                              \
    X(attention_ms)   /* Attention, QAttention, MultiHeadAttention of com.microsoft */                       \
    X(cast)           /* Cast, CastLike, BitCast */                                                          \
    X(conv)           /* Conv; FusedConv */                                                                  \
    X(conv_transpose) /* ConvTranspose, Col2Im */                                                            \
    X(decoding)       /* NGramRepeatBlock, BifurcationDetector, MurmurHash3 of com.microsoft */              \
    X(deform)         /* DeformConv, CausalConvWithState */                                                  \
    X(det)            /* Det; Inverse */                                                                     \
    X(distance)       /* CDist of com.microsoft */                                                           \
    X(einsum)         /* Einsum */                                                                           \
    X(elementwise)    /* functions of one tensor, Clip, IsNaN, IsInf, Not */                                 \
    X(experimental)   /* Affine, Crop, ImageScaler, ParametricSoftplus, Scale, ScaledTanh */                 \
    X(gather)         /* Gather, GatherElements, GatherND */                                                 \
    X(gather_blocks)  /* GatherBlockQuantized of com.microsoft */                                            \
    X(gelu)           /* Gelu, FastGelu, QuickGelu, BiasGelu of com.microsoft */                             \
    X(generate)       /* Range, EyeLike, Trilu, ReverseSequence */                                           \
    X(gridsample)     /* GridSample, AffineGrid */                                                           \
    X(image_decoder)  /* ImageDecoder */                                                                     \
    X(layernorm)      /* LayerNormalization, RMSNormalization; SkipLayerNormalization, … */                \
    X(loss)           /* NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss */                               \
    X(matmul)         /* MatMul, Gemm; FusedMatMul, TransposeMatMul, FusedGemm */                            \
    X(matmul_nbits)   /* MatMulNBits, MatMulBnb4 */                                                          \
    X(ml_encode)      /* LabelEncoder, CategoryMapper, OneHotEncoder */                                      \
    X(ml_feature)     /* ArrayFeatureExtractor, Binarizer, FeatureVectorizer, Imputer, Normalizer, Scaler */ \
    X(ml_linear)      /* LinearClassifier, LinearRegressor */                                                \
    X(ml_maps)        /* ZipMap, DictVectorizer, CastMap */                                                  \
    X(ml_svm)         /* SVMClassifier, SVMRegressor */                                                      \
    X(ml_tree)        /* TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor */                      \
    X(nms)            /* NonMaxSuppression */                                                                \
    X(norm) /* BatchNormalization, InstanceNormalization, GroupNormalization, LRN, LpNormalization, … */   \
    X(pad)  /* Pad, CenterCropPad */                                                                         \
    X(pool) /* MaxPool, AveragePool, LpPool, Global…, MaxUnpool; QLinearAveragePool,                       \
               QLinearGlobalAveragePool */                                                                   \
    X(qelement)   /* QLinearAdd, QLinearMul, QLinearConcat, QLinearSigmoid, QLinearLeakyRelu */              \
    X(qlinear)    /* MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv, … */                          \
    X(quant)      /* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear */                              \
    X(random)     /* RandomNormal, RandomUniform, Multinomial, Bernoulli, Dropout */                         \
    X(rank)       /* ArgMax, ArgMin, TopK, Hardmax, CumSum, CumProd */                                       \
    X(reduce)     /* the ten Reduce operators */                                                             \
    X(reshape)    /* Reshape, Flatten, Squeeze, Unsqueeze */                                                 \
    X(resize)     /* Resize, Upsample */                                                                     \
    X(rnn)        /* RNN, GRU, LSTM; DynamicQuantizeLSTM */                                                  \
    X(roi)        /* RoiAlign, MaxRoiPool */                                                                 \
    X(rotary)     /* RotaryEmbedding, LinearAttention; MRotaryEmbedding */                                   \
    X(scatter)    /* Scatter, ScatterElements, ScatterND, TensorScatter */                                   \
    X(select)     /* Compress, NonZero, Unique, OneHot */                                                    \
    X(sequence)   /* Sequence…, ConcatFromSequence, SplitToSequence, Optional… */                        \
    X(signal)     /* DFT, STFT, windows, MelWeightMatrix */                                                  \
    X(slice)      /* Slice */                                                                                \
    X(softmax)    /* Softmax, LogSoftmax; QLinearSoftmax */                                                  \
    X(text_ops)   /* StringNormalizer, StringSplit, StringConcat */                                          \
    X(text_regex) /* RegexFullMatch; Tokenizer */                                                            \
    X(text_tfidf) /* TfIdfVectorizer */                                                                      \
    X(training)   /* Adagrad, Adam, Momentum */

#define X(name) extern const op_table ops_##name;
OP_TABLES(X)
#undef X

#endif
