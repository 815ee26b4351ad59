/* media_in.h: values of a record that come as files: bytes, images, audio, arrays. */
#ifndef PIPELINE_MEDIA_IN_H
#define PIPELINE_MEDIA_IN_H

#include "pipeline/schema.h"

/* A file named by a record: Appends its bytes. */
MUST_USE status media_read_file(const record_source *source, const char *path, str *out, error *err);
/* A .npy file whose elements are of the type's (float32 for types that NumPy lacks). */
MUST_USE status media_read_npy(const record_source *source, const char *path, const cell_type *type, arena *a,
                               cell *out, error *err);
/* The bytes of an image or audio file, decoded as the field wants it. CHURON_UNSUPPORTED in builds without
 * CHURON_MEDIA. */
MUST_USE status media_read_image(const input_field *f, const cell *bytes, arena *a, cell *out, error *err);
MUST_USE status media_read_audio(const input_field *f, const cell *bytes, arena *a, cell *out, error *err);

#endif
