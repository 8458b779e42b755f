/* Clients of one consumer group of a redis stream: XREADGROUP and XACK, to compare pop mode with.
 *
 *     streams --port 6379 --topic bench --count 200000 --clients 4 --queues 1 [--batch]
 *
 * The stream must hold the ids 1-1 to 1-COUNT, and the group must be new. Each client reads up to --take entries,
 * acknowledges them (one XACK for each, all on their way at once, or one for all with --batch), and reads again. */
#define _GNU_SOURCE
#include "workers.h"

/* A line of an answer, without its end; it stays in the buffer. */
static char *read_line(struct client *c, size_t *size) {
    for (size_t wanted = 2;; wanted++) {
        uint8_t *at = need(c, wanted);
        if (at[wanted - 2] == '\r' && at[wanted - 1] == '\n') {
            at[wanted - 2] = 0;
            *size = wanted;
            return (char *)at;
        }
    }
}

static long long read_count(struct client *c, char kind) {
    size_t size;
    char *line = read_line(c, &size);
    if (line[0] != kind)
        die("redis answered:", line, size);
    long long value = atoll(line + 1);
    take_in(c, size);
    return value;
}

/* Skips a bulk string, or copies it if it fits. */
static void read_text(struct client *c, char *text, size_t room) {
    long long size = read_count(c, '$');
    uint8_t *at = need(c, (size_t)size + 2);
    if (text != NULL && (size_t)size < room) {
        memcpy(text, at, (size_t)size);
        text[size] = 0;
    }
    take_in(c, (size_t)size + 2);
}

static void queue_words(struct client *c, const char *const *words, int count) {
    char head[32];
    int size = snprintf(head, sizeof head, "*%d\r\n", count);
    memcpy(out_room(c, (size_t)size), head, (size_t)size);
    for (int i = 0; i < count; i++) {
        size_t word = strlen(words[i]);
        size = snprintf(head, sizeof head, "$%zu\r\n", word);
        uint8_t *at = out_room(c, (size_t)size + word + 2);
        memcpy(at, head, (size_t)size);
        memcpy(at + size, words[i], word);
        memcpy(at + size + word, "\r\n", 2);
    }
}

static int read_entries(struct client *c, char ids[32][32]) {
    size_t size;
    char *line = read_line(c, &size);
    bool is_empty = strcmp(line, "*-1") == 0 || strcmp(line, "$-1") == 0;
    if (!is_empty && strcmp(line, "*1") != 0)
        die("redis answered:", line, size);
    take_in(c, size);
    if (is_empty)
        return 0;
    if (read_count(c, '*') != 2)
        die("one stream was asked for", "", 0);
    read_text(c, NULL, 0);
    int count = (int)read_count(c, '*');
    if (count > 32)
        die("more entries than were asked for", "", 0);
    for (int i = 0; i < count; i++) {
        if (read_count(c, '*') != 2)
            die("an entry that is none", "", 0);
        read_text(c, ids[i], 32);
        if (strncmp(ids[i], "1-", 2) != 0)
            die("an id that nobody wrote:", ids[i], 32);
        seen_now(atoll(ids[i] + 2) - 1);
        for (long long fields = read_count(c, '*'); fields > 0; fields--)
            read_text(c, NULL, 0);
    }
    return count;
}

static int queue_acks(struct client *c, char ids[32][32], int count) {
    const char *words[3 + 32] = {"XACK", opt.topic, opt.group};
    for (int i = 0; i < count; i++) {
        words[opt.batch ? 3 + i : 3] = ids[i];
        if (!opt.batch)
            queue_words(c, words, 4);
    }
    if (opt.batch)
        queue_words(c, words, 3 + count);
    return opt.batch ? 1 : count;
}

static int work_once(struct client *c) {
    char ids[32][32], take[8], name[16];
    const char *words[] = {"XREADGROUP", "GROUP", opt.group, name, "COUNT", take, "STREAMS", opt.topic, ">"};
    int64_t began = now_ns();
    snprintf(take, sizeof take, "%d", opt.take);
    snprintf(name, sizeof name, "client-%d", c->number);
    queue_words(c, words, 9);
    send_out(c);
    int count = read_entries(c, ids);
    if (count == 0)
        return 0;
    int64_t taken_at = now_ns();
    histogram_add(&c->takes, (uint64_t)(taken_at - began));
    int waiting = queue_acks(c, ids, count);
    send_out(c);
    long long acked = 0;
    while (waiting-- > 0)
        acked += read_count(c, ':');
    if (acked != count)
        die("not everything was acknowledged", "", 0);
    histogram_add(&c->acks, (uint64_t)(now_ns() - taken_at));
    return count;
}

int main(int argc, char **argv) { return run_workers(argc, argv, "redis streams"); }
