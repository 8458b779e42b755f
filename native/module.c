/* rocketline._compiled: the quick roads of broker and store. Chosen, or not, by rocketline/_impl.py; everything here has a
 * Python twin that does the same. */
#include "common.h"

/* Raised with every change of what Python passes here or gets back; _impl.py knows the one it needs. */
#define REVISION 4

PyObject *name_unique, *name_keys, *name_tags;
static PyObject *struct_error;

int check_count(const char *name, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, count);
    return -1;
}

/* Numbers that do not fit fail as they do in the Python twin, which packs them with `struct`. */
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

#define METHOD(name, text) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, text}

static PyMethodDef methods[] = {
    METHOD(crc32, "CRC-32 of a buffer."),
    METHOD(take_frames, "The commands of complete, plain frames, and where the rest begins."),
    METHOD(stored_frame, "The answer to a stored send."),
    METHOD(offset_ids, "The ids of a batch."),
    METHOD(plain_send, "The fields of a plain send, completed."),
    METHOD(serve_sends, "Plain sends of a read, stored and answered."),
    METHOD(decode_properties, "Encoded properties as a dict."),
    METHOD(java_string_hash, "Java's String.hashCode."),
    METHOD(index_key_hash, "The hash of topic#key in the key index."),
    METHOD(write_record, "Write a record into a buffer."),
    METHOD(is_sound_record, "Whether bytes are the record that belongs there."),
    METHOD(sound_run, "The records that units point at, when all are sound."),
    METHOD(take_pulls, "Pulls of a read that are known but for their numbers."),
    METHOD(split_batch, "The messages of a batch send."),
    METHOD(measure_batch, "What the messages of a batch take."),
    METHOD(write_batch, "Write the records of a batch into a buffer."),
    METHOD(read_run, "Rows of plainly sound records."),
    METHOD(by_queue, "Rows by queue."),
    METHOD(pack_units, "Units of a consume queue."),
    METHOD(file_keys, "Entries of a key index."),
    METHOD(stretch_units, "Units of records in the log, by queue."),
    METHOD(stretch_entries, "Entries of records in the log."),
    METHOD(file_stretch, "Entries of a key index for records in the log."),
    METHOD(locate_run, "Where sound records and their parts are."),
    METHOD(wrong_bodies, "Bodies that do not match their checksums."),
    METHOD(lay_out, "Stretches of a buffer laid end to end."),
    METHOD(take_properties, "Properties of many records as columns."),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rocketline._compiled", "The quick roads of broker and store.", -1, methods, NULL, NULL, NULL, NULL,
};

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
    if (module == NULL || PyModule_AddIntConstant(module, "REVISION", REVISION) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
