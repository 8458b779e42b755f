/* The properties of a message, located where they lie. */
#include "records.h"

/* What makes a send special; __SHARDINGKEY counts as another kind of message. */
static const char *const special_names[] = {
    "POP_CK", "CLUSTER", "MSG_REGION", "TRACE_ON", "DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TRAN_MSG",
    "__SHARDINGKEY",
};

static int is_special(Span name)
{
    for (size_t number = 0; number < sizeof special_names / sizeof *special_names; number++) {
        const char *special = special_names[number];
        if (*special == *name.at && strlen(special) == (size_t)name.size && memcmp(special, name.at, (size_t)name.size) == 0)
            return 1;
    }
    return 0;
}

#define IS(text) (name.size == sizeof(text) - 1 && memcmp(name.at, text, sizeof(text) - 1) == 0)

void find_properties(const uint8_t *bytes, Py_ssize_t size, Properties *found)
{
    const uint8_t *end = bytes + size;
    *found = (Properties){{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, 0};
    while (bytes < end) {
        const uint8_t *item_end = memchr(bytes, 2, (size_t)(end - bytes));
        if (item_end == NULL)
            item_end = end;
        const uint8_t *name_end = memchr(bytes, 1, (size_t)(item_end - bytes));
        if (name_end != NULL && name_end > bytes && name_end + 1 < item_end) {
            Span name = {bytes, name_end - bytes}, value = {name_end + 1, item_end - name_end - 1};
            if (IS("UNIQ_KEY"))
                found->unique = value;
            else if (IS("KEYS"))
                found->keys = value;
            else if (IS("TAGS"))
                found->tags = value;
            else if (IS("WAIT"))
                found->wait = value;
            else
                found->special |= is_special(name);
        }
        bytes = item_end + 1;
    }
}

int hash_span(uint32_t *hash, Span span)
{
    uint32_t plain = *hash;
    uint8_t seen = 0;
    for (Py_ssize_t at = 0; at < span.size; at++) {
        seen |= span.at[at];
        plain = plain * 31 + span.at[at];
    }
    if (seen < 0x80) {
        *hash = plain;
        return 0;
    }
    PyObject *text = replaced_text(span.at, span.size);
    if (text == NULL)
        return -1;
    *hash = java_hash_text(*hash, text);
    Py_DECREF(text);
    return 0;
}
