/* ops.h: the tables of operators, one a file. op_find looks through them; generated lists (documentation,
 * `inspect
 * --passes`, the random-graph generator) read them too. */
#ifndef GRAPH_OPS_OPS_H
#define GRAPH_OPS_OPS_H

#include "graph/op.h"

#define OP_TABLES(X)                                                                                         \
    X(constant)       /* Constant, ConstantOfShape, Identity, Shape, Size */                                 \
    X(control)        /* If, Loop, Scan */                                                                   \
    X(matmul)         /* MatMul, Gemm; FusedMatMul, FusedGemm */                                             \
    X(conv)           /* Conv; FusedConv */                                                                  \
    X(conv_transpose) /* ConvTranspose, Col2Im */                                                            \
    X(deform)         /* DeformConv, CausalConvWithState */                                                  \
    X(pool)           /* MaxPool, AveragePool, LpPool, Global…, MaxUnpool; QLinearAveragePool,             \
                         QLinearGlobalAveragePool */                                                         \
    X(roi)            /* RoiAlign, MaxRoiPool */                                                             \
    X(quant)          /* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear */                          \
    X(qlinear)        /* MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv, … */                      \
    X(norm) /* BatchNormalization, InstanceNormalization, GroupNormalization, LRN, LpNormalization, … */   \
    X(softmax)   /* Softmax, LogSoftmax; QLinearSoftmax */                                                   \
    X(loss)      /* NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss */                                    \
    X(layernorm) /* LayerNormalization, RMSNormalization; SkipLayerNormalization, … */                     \
    X(resize)    /* Resize, Upsample */

#define X(name) extern const op_table ops_##name;
OP_TABLES(X)
#undef X

#endif
