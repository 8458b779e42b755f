/* Records that were appended, on their way into consume queues and key index. */
#ifndef ROCKETLINE_DISPATCH_H
#define ROCKETLINE_DISPATCH_H

#include "records.h"

/* What queues and index need of a record, in place. */
typedef struct {
    int64_t log_offset, queue_offset, store_ms;
    int32_t size, queue_id, sys_flag;
    Span topic, properties;
} Listed;

/* Records from `start` to `end`, in the memory of the file that begins at `base`. */
typedef struct {
    Py_buffer view;
    int64_t base, start, end;
} Range;

/* From the arguments (view, base, start, end); -1 with an error. The view is to be released. */
int open_range(PyObject *const *args, Range *range);
/* 1 for a record at `position` that a queue lists and that ends within the range; 0, without an error, for any other. */
int next_listed(const Range *range, int64_t position, Listed *listed);

#endif
