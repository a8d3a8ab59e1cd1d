/* The C side of torus.bundle.embedded: starts Python, and turns C arrays into Python objects and back. */

#define PY_SSIZE_T_CLEAN
#include <Python.h> /* before the others, which it configures */

#include "torus_bundle.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The build gives TORUS_PYTHON, the interpreter whose packages are used, and TORUS_LIBPYTHON, the name of its library.
   A process can choose another interpreter of the same version with the environment variable TORUS_PYTHON. */

typedef struct {
  size_t count;
  torus_tensor* items;
  Py_buffer* buffers; /* of results: what keeps their data */
  PyObject* owner;    /* the Python list that names, dtypes and data belong to */
} tensor_list;

struct torus_bundle {
  PyObject* bundle;
  PyObject* description;
  tensor_list inputs;
  tensor_list outputs;
};

struct torus_results {
  tensor_list list;
};

static _Thread_local char last_error[4096];

const char* torus_bundle_last_error(void) {
  return last_error;
}

static void set_error(const char* text) {
  snprintf(last_error, sizeof last_error, "%s", text);
}

/* Keeps the Python exception that is set, as "Type: text". */
static void take_python_error(void) {
  PyObject *type = NULL, *value = NULL, *trace = NULL;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* text = value ? PyObject_Str(value) : NULL;
  const char* message = text ? PyUnicode_AsUTF8(text) : NULL;
  const char* name = value ? Py_TYPE(value)->tp_name : "Error";
  snprintf(last_error, sizeof last_error, "%s: %s", name, message ? message : "without a text");
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

/* Starting Python ------------------------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char start_error[512];

/* Nothing else in this process can want PyTorch then, and torus starts faster without it. */
static void hide_torch(void) {
  PyObject* modules = PyImport_GetModuleDict();
  if (PyDict_SetItemString(modules, "torch", Py_None) < 0) PyErr_Clear();
}

static PyStatus initialize(void) {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  config.parse_argv = 0;
  const char* chosen = getenv("TORUS_PYTHON");
  const char* program = chosen && *chosen ? chosen : TORUS_PYTHON;
  PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, program);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  return status;
}

static void start_python(void) {
  /* Extension modules look Python's symbols up among the global ones, also when this library was loaded privately. */
  dlopen(TORUS_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  if (Py_IsInitialized()) return;
  PyStatus status = initialize();
  if (PyStatus_Exception(status)) {
    snprintf(start_error, sizeof start_error, "Python does not start: %s", status.err_msg ? status.err_msg : "");
    return;
  }
  hide_torch();
  PyEval_SaveThread();
}

/* Calling torus.bundle.embedded ----------------------------------------------------------------------------------- */

/* The result of a function of that module, as a new reference; steals `arguments`. NULL with a Python error. */
static PyObject* call(const char* function, PyObject* arguments) {
  PyObject* module = arguments ? PyImport_ImportModule("torus.bundle.embedded") : NULL;
  PyObject* callable = module ? PyObject_GetAttrString(module, function) : NULL;
  PyObject* result = callable ? PyObject_CallObject(callable, arguments) : NULL;
  Py_XDECREF(callable);
  Py_XDECREF(module);
  Py_XDECREF(arguments);
  return result;
}

static int64_t* read_sizes(PyObject* sizes, size_t* rank) {
  Py_ssize_t count = PyTuple_Size(sizes);
  if (count < 0) return NULL;
  int64_t* values = malloc(sizeof(int64_t) * ((size_t)count + 1));
  if (!values) return (int64_t*)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, i));
  *rank = (size_t)count;
  return values;
}

/* Fills in one tensor from (name, dtype, sizes, data or None). */
static int read_tensor(PyObject* entry, torus_tensor* tensor, Py_buffer* buffer) {
  PyObject *sizes, *data;
  if (!PyArg_ParseTuple(entry, "ssO!O", &tensor->name, &tensor->dtype, &PyTuple_Type, &sizes, &data)) return -1;
  tensor->sizes = read_sizes(sizes, &tensor->rank);
  if (!tensor->sizes) return -1;
  if (data == Py_None) return 0;
  if (PyObject_GetBuffer(data, buffer, PyBUF_SIMPLE) < 0) return -1;
  tensor->data = buffer->buf;
  tensor->bytes = (size_t)buffer->len;
  return 0;
}

static void free_list(tensor_list* list) {
  for (size_t i = 0; i < list->count; i++) {
    if (list->buffers && list->buffers[i].obj) PyBuffer_Release(&list->buffers[i]);
    free((void*)list->items[i].sizes);
  }
  free(list->buffers);
  free(list->items);
  Py_XDECREF(list->owner);
}

/* Fills in `list` from a Python list of tensors, which it takes over. */
static int read_list(PyObject* tensors, tensor_list* list) {
  if (!tensors) return -1;
  list->owner = tensors;
  size_t count = (size_t)PyList_Size(tensors);
  list->items = calloc(count + 1, sizeof *list->items);
  list->buffers = calloc(count + 1, sizeof *list->buffers);
  if (!list->items || !list->buffers) {
    PyErr_NoMemory();
    return -1;
  }
  list->count = count;
  for (size_t i = 0; i < count; i++) {
    PyObject* entry = PyList_GET_ITEM(tensors, (Py_ssize_t)i);
    if (read_tensor(entry, &list->items[i], &list->buffers[i]) < 0) return -1;
  }
  return 0;
}

/* Bundles --------------------------------------------------------------------------------------------------------- */

static void clear_bundle(torus_bundle* bundle) {
  free_list(&bundle->inputs);
  free_list(&bundle->outputs);
  Py_XDECREF(bundle->description);
  Py_XDECREF(bundle->bundle);
  free(bundle);
}

static int fill_bundle(torus_bundle* bundle, const char* path) {
  bundle->bundle = call("load", Py_BuildValue("(N)", PyUnicode_DecodeFSDefault(path)));
  if (!bundle->bundle) return -1;
  if (read_list(call("inputs", Py_BuildValue("(O)", bundle->bundle)), &bundle->inputs) < 0) return -1;
  if (read_list(call("outputs", Py_BuildValue("(O)", bundle->bundle)), &bundle->outputs) < 0) return -1;
  bundle->description = PyObject_CallMethod(bundle->bundle, "describe", NULL);
  return bundle->description && PyUnicode_AsUTF8(bundle->description) ? 0 : -1;
}

torus_bundle* torus_bundle_load(const char* path) {
  pthread_once(&once, start_python);
  if (*start_error) {
    set_error(start_error);
    return NULL;
  }
  torus_bundle* bundle = calloc(1, sizeof *bundle);
  if (!bundle) {
    set_error("there is no memory left");
    return NULL;
  }
  PyGILState_STATE state = PyGILState_Ensure();
  if (fill_bundle(bundle, path) < 0) {
    take_python_error();
    clear_bundle(bundle);
    bundle = NULL;
  }
  PyGILState_Release(state);
  return bundle;
}

void torus_bundle_free(torus_bundle* bundle) {
  if (!bundle) return;
  PyGILState_STATE state = PyGILState_Ensure();
  clear_bundle(bundle);
  PyGILState_Release(state);
}

static const torus_tensor* item(const tensor_list* list, size_t index) {
  return index < list->count ? &list->items[index] : NULL;
}

size_t torus_bundle_input_count(const torus_bundle* bundle) {
  return bundle->inputs.count;
}

const torus_tensor* torus_bundle_input(const torus_bundle* bundle, size_t index) {
  return item(&bundle->inputs, index);
}

size_t torus_bundle_output_count(const torus_bundle* bundle) {
  return bundle->outputs.count;
}

const torus_tensor* torus_bundle_output(const torus_bundle* bundle, size_t index) {
  return item(&bundle->outputs, index);
}

const char* torus_bundle_describe(const torus_bundle* bundle) {
  PyGILState_STATE state = PyGILState_Ensure();
  const char* text = PyUnicode_AsUTF8(bundle->description); /* made at load, so that this cannot fail */
  PyGILState_Release(state);
  return text;
}

/* Running --------------------------------------------------------------------------------------------------------- */

static PyObject* sizes_of(const torus_tensor* tensor) {
  PyObject* sizes = PyTuple_New((Py_ssize_t)tensor->rank);
  for (size_t i = 0; sizes && i < tensor->rank; i++) {
    PyObject* size = PyLong_FromLongLong(tensor->sizes[i]);
    if (!size) {
      Py_CLEAR(sizes);
      break;
    }
    PyTuple_SET_ITEM(sizes, (Py_ssize_t)i, size);
  }
  return sizes;
}

/* (name or None, dtype, sizes, data), where data looks at the caller's memory. */
static PyObject* input_of(const torus_tensor* tensor) {
  static char nothing[1];
  char* data = tensor->data ? (char*)tensor->data : nothing;
  PyObject* view = PyMemoryView_FromMemory(data, tensor->data ? (Py_ssize_t)tensor->bytes : 0, PyBUF_READ);
  return Py_BuildValue("(zsNN)", tensor->name, tensor->dtype, sizes_of(tensor), view);
}

static PyObject* inputs_of(const torus_tensor* inputs, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; i++) {
    PyObject* input = input_of(&inputs[i]);
    if (!input) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, (Py_ssize_t)i, input);
  }
  return list;
}

torus_results* torus_bundle_run(torus_bundle* bundle, const torus_tensor* inputs, size_t count) {
  torus_results* results = calloc(1, sizeof *results);
  if (!results) {
    set_error("there is no memory left");
    return NULL;
  }
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* arguments = Py_BuildValue("(ON)", bundle->bundle, inputs_of(inputs, count));
  if (read_list(call("run", arguments), &results->list) < 0) {
    take_python_error();
    free_list(&results->list);
    free(results);
    results = NULL;
  }
  PyGILState_Release(state);
  return results;
}

size_t torus_results_count(const torus_results* results) {
  return results->list.count;
}

const torus_tensor* torus_results_get(const torus_results* results, size_t index) {
  return item(&results->list, index);
}

void torus_results_free(torus_results* results) {
  if (!results) return;
  PyGILState_STATE state = PyGILState_Ensure();
  free_list(&results->list);
  free(results);
  PyGILState_Release(state);
}
