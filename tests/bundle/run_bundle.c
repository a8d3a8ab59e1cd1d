/* Runs a bundle: run_bundle FOLDER BATCH. Inputs count up from 0 in quarters; outputs are printed, a line each. */

#include "torus_bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill(const torus_tensor* input, void* data, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(input->dtype, "float32") == 0) ((float*)data)[i] = (float)i / 4;
    if (strcmp(input->dtype, "int64") == 0) ((int64_t*)data)[i] = (int64_t)i;
  }
}

static torus_tensor make_input(const torus_tensor* input, int64_t batch) {
  torus_tensor made = {input->name, input->dtype, input->rank, NULL, NULL, 0};
  int64_t* sizes = malloc(sizeof(int64_t) * (input->rank + 1));
  size_t count = 1;
  for (size_t d = 0; d < input->rank; d++) {
    sizes[d] = input->sizes[d] < 0 ? batch : input->sizes[d];
    count *= (size_t)sizes[d];
  }
  made.bytes = count * (strcmp(input->dtype, "int64") == 0 ? 8 : 4);
  void* data = malloc(made.bytes);
  fill(input, data, count);
  made.sizes = sizes;
  made.data = data;
  return made;
}

static void print(const torus_tensor* tensor) {
  printf("%s %s", tensor->name, tensor->dtype);
  for (size_t d = 0; d < tensor->rank; d++) printf(" %lld", (long long)tensor->sizes[d]);
  printf(":");
  for (size_t i = 0; i < tensor->bytes; i++) printf(" %02x", ((const unsigned char*)tensor->data)[i]);
  printf("\n");
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  torus_bundle* bundle = torus_bundle_load(argv[1]);
  if (!bundle) {
    printf("%s\n", torus_bundle_last_error());
    return 1;
  }
  printf("%s\n", torus_bundle_describe(bundle));
  size_t count = torus_bundle_input_count(bundle);
  torus_tensor* inputs = calloc(count + 1, sizeof *inputs);
  for (size_t i = 0; i < count; i++) inputs[i] = make_input(torus_bundle_input(bundle, i), atoll(argv[2]));
  torus_results* results = torus_bundle_run(bundle, inputs, count);
  if (!results) printf("%s\n", torus_bundle_last_error());
  for (size_t i = 0; results && i < torus_results_count(results); i++) print(torus_results_get(results, i));
  torus_results_free(results);
  torus_bundle_free(bundle);
  for (size_t i = 0; i < count; i++) {
    free((void*)inputs[i].sizes);
    free((void*)inputs[i].data);
  }
  free(inputs);
  return results ? 0 : 1;
}
