/* Runs torus bundles from C. Python is inside: it is started at the first load, unless the process has it already.

   Every function may be called from any thread. One that fails returns NULL, and torus_bundle_last_error() says why. */

#ifndef TORUS_BUNDLE_H
#define TORUS_BUNDLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct torus_bundle torus_bundle;
typedef struct torus_results torus_results;

/* A tensor, its elements in row-major order. */
typedef struct {
  const char* name;     /* of an input to run: NULL, where the order of the inputs says which it is */
  const char* dtype;    /* "float32", "int64", "bfloat16", ... */
  size_t rank;          /* the number of sizes */
  const int64_t* sizes; /* of an input or output of a bundle: -1 for a size that varies */
  const void* data;     /* of an input or output of a bundle: NULL */
  size_t bytes;         /* of data */
} torus_tensor;

/* Reads the bundle in the folder `path` and compares its checksums. */
torus_bundle* torus_bundle_load(const char* path);
void torus_bundle_free(torus_bundle* bundle);

/* What the bundle takes and gives; all pointers live as long as the bundle. NULL for an index that does not exist. */
size_t torus_bundle_input_count(const torus_bundle* bundle);
const torus_tensor* torus_bundle_input(const torus_bundle* bundle, size_t index);
size_t torus_bundle_output_count(const torus_bundle* bundle);
const torus_tensor* torus_bundle_output(const torus_bundle* bundle, size_t index);

/* A few lines for people. */
const char* torus_bundle_describe(const torus_bundle* bundle);

/* Runs the model. The data of `inputs` is read before this returns; results live until torus_results_free. */
torus_results* torus_bundle_run(torus_bundle* bundle, const torus_tensor* inputs, size_t count);
size_t torus_results_count(const torus_results* results);
const torus_tensor* torus_results_get(const torus_results* results, size_t index);
void torus_results_free(torus_results* results);

/* Why the last call of this thread that failed did so; "" when none has. */
const char* torus_bundle_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
