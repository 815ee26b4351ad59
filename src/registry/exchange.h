/* exchange.h: models of other registries: taken in, and given in their forms.
 *
 * Taken in: an MLflow model folder (ONNX flavour), a Triton model or model repository (config.pbtxt and
 * numbered folders with ONNX models), a Hugging Face folder, a plain ONNX file. What they say about
 * themselves (run, producer, metadata) goes into notes and lineage. Given: plain (the files), pack (one
 * .churon file), mlflow, triton; the last two of a version whose model is ONNX. */
#ifndef REGISTRY_EXCHANGE_H
#define REGISTRY_EXCHANGE_H

#include "registry/registry.h"

/* Takes in one model, or every model of a Triton repository with every version. name NULL: as the source
 * says. Appends
 * {"format", "added": [{"name", "version", "digest", "already"}]} to *json. */
MUST_USE status registry_import(registry *r, const char *path, const char *name, str *json, error *err);

/* Writes the version to `to` (a new folder; for pack a file). Needs the right read. Appends {"format",
 * "path"}. */
MUST_USE status registry_export(registry *r, const char *ref, const char *format, const char *to, str *json,
                                error *err);

#endif
