/* rocketline._compiled: compiled counterparts of Python functions, chosen or not by rocketline/_impl.py, and the fast path of a
 * broker (fastpath/), which does what the general path does in Python. */
#include "common.h"

/* A hash of these sources, given by the build. */
#ifndef SOURCES
#define SOURCES "unknown"
#endif

PyObject *name_unique, *name_keys, *name_tags;
static PyObject *struct_error;

int check_count(const char *name, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, count);
    return -1;
}

/* Numbers that do not fit fail as they do in Python, which packs them with `struct`. */
int as_int64(PyObject *number, int64_t *value)
{
    int overflow = 0;
    *value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow)
        PyErr_Format(struct_error, "%R does not fit 64 bits", number);
    return overflow || (*value == -1 && PyErr_Occurred()) ? -1 : 0;
}

int as_int32(PyObject *number, int32_t *value)
{
    int64_t wide;
    if (as_int64(number, &wide))
        return -1;
    if (wide < INT32_MIN || wide > INT32_MAX) {
        PyErr_Format(struct_error, "%R does not fit 32 bits", number);
        return -1;
    }
    *value = (int32_t)wide;
    return 0;
}

int read_from(PyObject *object, Py_buffer *view)
{
    return PyObject_GetBuffer(object, view, PyBUF_SIMPLE);
}

int write_to(PyObject *object, Py_buffer *view)
{
    return PyObject_GetBuffer(object, view, PyBUF_WRITABLE);
}

PyObject *new_row(PyObject *type, Py_ssize_t size)
{
    PyTypeObject *kind = (PyTypeObject *)type;
    if (!PyType_Check(type) || !PyType_IsSubtype(kind, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "rows are tuples");
        return NULL;
    }
    return kind->tp_alloc(kind, size);
}

#define METHOD(name, text) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, text},

static PyMethodDef methods[] = {EXPORTED(METHOD) {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rocketline._compiled", "Compiled functions of broker and store.", -1, methods, NULL, NULL, NULL, NULL,
};

/* RECORD_LAYOUT: the layout of a record as this code knows it. */
static int add_layout(PyObject *module)
{
    PyObject *layout = PyDict_New();
    int sound = layout != NULL;
#define ADD(name, value) \
    if (sound) { \
        PyObject *number = PyLong_FromLong(value); \
        sound = number != NULL && PyDict_SetItemString(layout, #name, number) == 0; \
        Py_XDECREF(number); \
    }
    RECORD_LAYOUT(ADD)
#undef ADD
    int added = sound ? PyModule_AddObjectRef(module, "RECORD_LAYOUT", layout) : -1;
    Py_XDECREF(layout);
    return added;
}

PyMODINIT_FUNC PyInit__compiled(void)
{
    crc32_ready();
    name_unique = PyUnicode_InternFromString("UNIQ_KEY");
    name_keys = PyUnicode_InternFromString("KEYS");
    name_tags = PyUnicode_InternFromString("TAGS");
    PyObject *structs = PyImport_ImportModule("struct");
    struct_error = structs == NULL ? NULL : PyObject_GetAttrString(structs, "error");
    Py_XDECREF(structs);
    PyObject *module = struct_error == NULL ? NULL : PyModule_Create(&definition);
    if (module == NULL || PyModule_AddStringConstant(module, "SOURCES", SOURCES) < 0 || add_layout(module) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
